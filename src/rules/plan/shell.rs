//! Commands that users paste into a shell.

use std::borrow::Cow;

use mcm_api::kinds::{ResourceKind, mcm_kind};

/// A text as one word of a shell. Texts of objects are quoted unless they are plain, so that nothing in them is executed.
pub fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "-_./:=@%+,".contains(one);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// The kind as an argument of kubectl. Short names are ambiguous where Cluster API, which has kinds of the same names, is installed.
pub fn resource_name(kind: &str) -> String {
    mcm_kind(kind).map_or_else(|| kind.to_lowercase(), ResourceKind::full_name)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("pool-6d689-gmjqk", "pool-6d689-gmjqk")]
    #[case("", "''")]
    #[case("a b", "'a b'")]
    #[case("$(echo no)", "'$(echo no)'")]
    #[case("x';echo no;'", r"'x'\'';echo no;'\'''")]
    fn a_text_is_one_word_whatever_it_contains(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(word(text), expected);
        let printed = Command::new("sh").args(["-c", &format!("printf %s {}", word(text))]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&printed.stdout), text);
    }
}
