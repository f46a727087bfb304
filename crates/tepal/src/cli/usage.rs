//! A command line that isn't carried out: it asked for help, or it is wrong.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Clap's word on a command line, said in our way: one line for an error.
#[derive(Debug)]
pub struct Usage {
    error: clap::Error,
    /// Which command it was to be, as far as that is to be seen.
    command: String,
}

const WRONG: u8 = 2;

impl Usage {
    pub fn new(error: clap::Error, tree: &clap::Command, arguments: &[OsString]) -> Self {
        let (mut at, mut command) = (tree, tree.get_name().to_owned());
        for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
            if let Some(next) = at.find_subcommand(word) {
                (at, command) = (next, format!("{command} {word}"));
            }
        }
        Usage { error, command }
    }

    /// Help and version go to standard output; an error is one line on standard error.
    pub fn print(&self) -> ExitCode {
        // Whoever reads it may have gone; there is nobody else to tell.
        match self.error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let _ = self.error.print();
                ExitCode::SUCCESS
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = write!(std::io::stdout(), "{}", self.error);
                let _ = writeln!(std::io::stderr(), "error: a command is missing; they are listed above");
                ExitCode::from(WRONG)
            }
            _ => {
                let _ = writeln!(std::io::stderr(), "{}", self.line());
                ExitCode::from(WRONG)
            }
        }
    }

    /// `error: ...` on one line: what is wrong, a suggestion if there is one, and where to read more.
    fn line(&self) -> String {
        let text = self.error.render().to_string();
        let mut paragraphs = text.split("\n\n");
        let first = paragraphs.next().unwrap_or_default();
        let mut line = first.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        if let Some(suggestion) = self.suggestion() {
            line.push_str(&format!("; did you mean '{suggestion}'?"));
        }
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let line = shortened(&line);
        format!("{line} (see `{} --help`)", self.command)
    }

    fn suggestion(&self) -> Option<&str> {
        let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
        kinds.iter().find_map(|&kind| match self.error.get(kind)? {
            ContextValue::String(text) => Some(text.as_str()),
            // Clap gives the likeliest last.
            ContextValue::Strings(texts) => texts.last().map(String::as_str),
            _ => None,
        })
    }
}

/// Both ends of a line that is long because a value is: what is said of a value may come before it or after it.
fn shortened(line: &str) -> String {
    const END: usize = 400;
    let length = line.chars().count();
    if length <= 2 * END {
        return line.to_owned();
    }
    let (start, end): (String, String) = (line.chars().take(END).collect(), line.chars().skip(length - END).collect());
    format!("{start} ... {end}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    fn line(arguments: &[&str]) -> String {
        let arguments = ["tepal"].iter().chain(arguments).map(OsString::from);
        crate::cli::parse(arguments).expect_err("refused").line()
    }

    #[test]
    fn a_wrong_command_line_is_one_line_that_names_what_is_wrong() {
        for (arguments, said) in [
            (&["volume", "creat", "x"][..], "create"),
            (&["volume", "create", "x"], "--size"),
            (&["volume", "create", "x", "--size", "18446744073709551615E"], "larger than 2^63"),
            (&["volume", "create", "x", "--size", "-5"], "'-5'"),
            (&["volume", "create", "../x", "--size", "5M"], "'../x' is not a name"),
            (&["volume", "create", "a\nb", "--size", "5M"], "not a name"),
            (&["volume", "create", "x", "--size", "5M", "--layout", "raid7"], "unknown layout 'raid7'"),
            (&["snapshot", "create", "v0"], "VOLUME@SNAP"),
            (&["snapshot", "rm", "v0@a@b"], "'a@b' is not a name"),
            (&["snapshot", "rename", "v0@a", "v0@b"], "'v0@b' is not a name"),
            (&["volume", "export", "v0", "--since", "v0@a"], "not a name"),
            (&["drive", "rm", "z/z"], "'z/z' is neither a drive's name"),
            (&["drive", "add", "1", "/dev/x"], "server"),
            (&["status", "-o", "yaml"], "json"),
            (&["--frobnicate"], "--frobnicate"),
            (&["dev", "kill"], "<SERVER>"),
            (&["volume", "relayout", "v"], "--layout <LAYOUT>|--pool <POOL>"),
        ] {
            let line = line(arguments);
            assert!(line.starts_with("error: ") && !line.contains('\n'), "{arguments:?}: {line}");
            assert!(line.contains(said), "{arguments:?}: {line}");
        }
    }

    #[test]
    fn of_a_long_value_only_as_much_is_repeated_as_a_reader_can_take_in() {
        let long = "a".repeat(100_000);
        let line = line(&["volume", "create", &long, "--size", "5M"]);
        assert!(line.starts_with("error: ") && line.contains("not a name") && line.len() < 1000, "{line}");
    }

    #[test]
    fn the_line_says_where_to_read_more() {
        assert!(
            line(&["-o", "json", "volume", "relayout", "v", "--layout", "x"])
                .ends_with("`tepal volume relayout --help`)")
        );
        assert!(line(&["--frobnicate"]).ends_with("(see `tepal --help`)"));
        assert!(line(&["volume", "create", "x"]).ends_with("(see `tepal volume create --help`)"));
    }
}
