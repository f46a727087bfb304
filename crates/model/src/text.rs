//! Texts that people give: which of them are names or times, and how much of one an error quotes.

use std::time::Duration;

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

/// A time as people write it: a whole number and `ns`, `us`, `ms`, `s`, `m` or `h`.
pub fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit].parse().ok()?;
    let nanos = match &text[unit..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.checked_mul(nanos)?))
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
    fn times_have_a_unit() {
        assert_eq!(duration("1500ms"), Some(Duration::from_millis(1_500)));
        assert_eq!(["90s", "10m", "24h"].map(duration), [90, 600, 86_400].map(|s| Some(Duration::from_secs(s))));
        for text in ["", "5", "ms", "1.5s", "-1s", "1 s", "99999999999999999999s", "18446744073709551615s"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_error_shows_the_beginning_of_a_long_text_whole_characters_only() {
        assert_eq!(shown(&"é".repeat(1000)), "é".repeat(60));
    }
}
