//! Words of plans and of answers about them.

use std::fmt::Display;

/// A number with its noun: `1 machine`, `2 machines`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_none_is_plural() {
        assert_eq!([0, 1, 2].map(|count: usize| counted(count, "pod")), ["0 pods", "1 pod", "2 pods"]);
        assert_eq!(counted(1_i32, "set"), "1 set");
    }
}
