//! The words of a line of Vinum's file, and its sizes.

use crate::apply::wanted::{At, Wrong};
use tepal_model::text::shown;

/// Bytes of a sector, in which `s` and `b` count.
const SECTOR: u64 = 512;

/// A word, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub at: At,
    pub text: String,
}

/// The words of a line up to its comment. A word in quotes may have blanks in it.
pub fn words(text: &str, line: usize) -> Result<Vec<Word>, Wrong> {
    let mut words = Vec::new();
    let mut letters = text.chars().zip(1..).peekable();
    while let Some(&(letter, column)) = letters.peek() {
        let at = At { line, column };
        match letter {
            '#' => break,
            letter if letter.is_whitespace() => drop(letters.next()),
            '"' | '\'' => {
                letters.next();
                let mut word = String::new();
                loop {
                    match letters.next() {
                        Some((end, _)) if end == letter => break,
                        Some(('\\', _)) => word.extend(letters.next().map(|(letter, _)| letter)),
                        Some((inner, _)) => word.push(inner),
                        None => return Err(Wrong::new(at, format!("the quote {letter} isn't closed on this line"))),
                    }
                }
                if let Some((next, column)) = letters.peek().filter(|(next, _)| !next.is_whitespace()) {
                    let at = At { line, column: *column };
                    return Err(Wrong::new(at, format!("a blank belongs between a closing quote and '{next}'")));
                }
                words.push(Word { at, text: word });
            }
            _ => {
                let mut word = String::new();
                while let Some((letter, _)) = letters.next_if(|(letter, _)| !letter.is_whitespace()) {
                    word.push(letter);
                }
                words.push(Word { at, text: word });
            }
        }
    }
    Ok(words)
}

/// Bytes: a whole number, and `s` or `b` (sectors of 512), `k`, `m` or `g` (binary) after it, or none of them.
pub fn size(word: &Word) -> Result<u64, Wrong> {
    let text = &word.text;
    let wrong = |what: &str| Wrong::new(word.at, format!("size '{}': {what}", shown(text)));
    let rule = "write a whole number of bytes, or one with s or b (sectors of 512 bytes), k, m or g after it";
    let (digits, unit) = match text.chars().next_back().map(|letter| letter.to_ascii_lowercase()) {
        Some('s' | 'b') => (&text[..text.len() - 1], SECTOR),
        Some('k') => (&text[..text.len() - 1], 1 << 10),
        Some('m') => (&text[..text.len() - 1], 1 << 20),
        Some('g') => (&text[..text.len() - 1], 1 << 30),
        _ => (&text[..], 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong(rule));
    }
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| wrong("it's too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_blanks_and_comments_and_know_their_columns() {
        let found = words("\tsd  length 512m#x 'a b' \"c\\\"d\" # drive", 3).unwrap();
        let found: Vec<_> = found.iter().map(|word| (word.at.column, word.text.as_str())).collect();
        assert_eq!(found, [(2, "sd"), (6, "length"), (13, "512m#x"), (20, "a b"), (26, "c\"d")]);
        assert_eq!(words("  # all of it", 1), Ok(vec![]));
    }

    #[test]
    fn a_quote_that_ends_wrongly_is_refused() {
        for (text, column) in [("drive 'a", 7), ("drive \"a\\\"", 7), ("drive 'a'b", 10)] {
            assert_eq!(words(text, 2).unwrap_err().at, At { line: 2, column }, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_in_all_units_and_nothing_else() {
        let of = |text: &str| size(&Word { at: At::default(), text: text.to_owned() });
        for (text, bytes) in
            [("0", 0), ("512", 512), ("3s", 1536), ("3B", 1536), ("512k", 512 << 10), ("1M", 1 << 20), ("2g", 2 << 30)]
        {
            assert_eq!(of(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "1.5g", "-1", "+1", "1t", "512mb", "0x10", "max", "1k2", "é", "99999999999g"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
