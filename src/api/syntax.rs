//! Syntax of labels, annotations and taints, as the API server checks it.

/// Longest value of a label or taint, and longest name of a key after its prefix.
pub const NAME_MAX: usize = 63;
/// Longest prefix of a key.
const PREFIX_MAX: usize = 253;

/// A text can be the value of a label or taint.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Why a text cannot be the value of a label or taint, as a predicate of it; `None` if it can.
pub fn label_value_problem(text: &str) -> Option<&'static str> {
    match is_label_value(text) {
        true => None,
        false if text.len() > NAME_MAX => Some("has more than 63 characters"),
        false if !text.bytes().all(is_inner) => Some("has characters other than letters, digits, '-', '_' and '.'"),
        false => Some("does not begin and end with a letter or digit"),
    }
}

/// A text can be the key of a label or taint: a name, with or without a DNS subdomain before a slash.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

const fn is_inner(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.')
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX && begins_and_ends(text, |c| c.is_ascii_alphanumeric()) && text.bytes().all(is_inner)
}

/// A text can be the name of an object such as a Secret: a DNS subdomain.
pub fn is_subdomain(text: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| begins_and_ends(part, is_plain) && part.bytes().all(|c| is_plain(c) || c == b'-');
    text.len() <= PREFIX_MAX && text.split('.').all(is_part)
}

/// True for a character that can hide or reorder what a terminal, a log or a page shows: a control character, or a mark of the
/// direction of writing.
pub fn is_deceptive(one: char) -> bool {
    const DIRECTIONS: [std::ops::RangeInclusive<char>; 4] =
        ['\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    one.is_control() || DIRECTIONS.iter().any(|range| range.contains(&one))
}

fn begins_and_ends(text: &str, with: impl Fn(u8) -> bool) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.into_iter().all(|end| end.is_some_and(&with))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", true)]
    #[case("a", true)]
    #[case("A_b-c.9", true)]
    #[case("data platform", false)]
    #[case("-a", false)]
    #[case("a.", false)]
    #[case("ä", false)]
    fn values(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_label_value(text), expected);
        assert!(is_label_value(&"x".repeat(63)) && !is_label_value(&"x".repeat(64)));
    }

    #[rstest]
    #[case("", None)]
    #[case("x", None)]
    #[case("x_", Some("does not begin and end with a letter or digit"))]
    #[case(".x", Some("does not begin and end with a letter or digit"))]
    #[case("data platform", Some("has characters other than letters, digits, '-', '_' and '.'"))]
    #[case(&"x".repeat(64), Some("has more than 63 characters"))]
    fn the_problem_of_a_value_is_the_one_that_it_has(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(label_value_problem(text), expected);
    }

    #[rstest]
    #[case("a", true)]
    #[case("node.kubernetes.io/Some_name", true)]
    #[case("", false)]
    #[case("/a", false)]
    #[case("a/", false)]
    #[case("a/b/c", false)]
    #[case("Upper.io/a", false)]
    #[case("a..b/c", false)]
    #[case("bad key", false)]
    fn keys(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_qualified_name(text), expected);
        assert!(!is_qualified_name(&format!("{}/a", "x".repeat(254))));
    }

    #[rstest]
    #[case::escape('\u{1b}', true)]
    #[case::next_line('\u{85}', true)]
    #[case::override_to_the_left('\u{202e}', true)]
    #[case::isolate('\u{2066}', true)]
    #[case::mark('\u{200f}', true)]
    #[case::mark_of_arabic('\u{61c}', true)]
    #[case::letter('a', false)]
    #[case::letter_of_hebrew('\u{5d0}', false)]
    #[case::joiner_of_emoji('\u{200d}', false)]
    #[case::ellipsis('…', false)]
    fn marks_of_direction_deceive(#[case] one: char, #[case] expected: bool) {
        assert_eq!(is_deceptive(one), expected);
    }
}
