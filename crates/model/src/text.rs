//! Texts that people give: which of them are names, and how much of one an error quotes.

/// The rule of [`is_name`], as an error tells it.
pub const NAME_RULE: &str = "use 1 to 128 of A-Z a-z 0-9 . _ - and begin with none of . -";

/// Whether volumes, pools and clusters can be called this: never a path, an option, or anything that a shell or a URL
/// would read as more than a word.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&text.len()) && text.bytes().all(allowed) && !text.starts_with(['.', '-'])
}

/// As much of a text as an error shows: its first 60 characters.
pub fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        let long = "a".repeat(129);
        for text in ["", ".", "..", "-x", "../x", "a/b", "a b", "a\nb", "a\0", "naïve", "a?b", "a%2e", long.as_str()] {
            assert!(!is_name(text), "{text:?}");
        }
        for text in ["a", "0", "_", "v0", "A.b_c-9", &long[..128]] {
            assert!(is_name(text), "{text:?}");
        }
    }

    #[test]
    fn an_error_shows_the_beginning_of_a_long_text_whole_characters_only() {
        assert_eq!(shown(&"é".repeat(1000)), "é".repeat(60));
    }
}
