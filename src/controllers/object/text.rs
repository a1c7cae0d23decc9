//! Texts of other programs in our objects: an API server refuses objects that are too large.

/// `text`, or as many of its bytes, between two characters, with `…` at the end.
pub(crate) fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mut short = text.get(..text.floor_char_boundary(longest)).unwrap_or_default().to_owned();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::it_fits("four", 4, "four")]
    #[case::it_does_not("longer", 4, "long…")]
    #[case::between_characters("größer", 3, "gr…")]
    #[case::nothing_fits("ö", 1, "…")]
    fn a_long_text_is_cut(#[case] text: &str, #[case] longest: usize, #[case] expected: &str) {
        assert_eq!(cut(text, longest), expected);
    }
}
