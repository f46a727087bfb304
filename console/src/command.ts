// The command that does the same, as it's typed into a shell.

/** Quoted where a shell would read it as something else. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Parts that are empty or false are left out. */
export function command(...words: (string | false | null | undefined)[]): string {
  return ["tepal", ...words.filter((word): word is string => !!word).map(quoted)].join(" ");
}
