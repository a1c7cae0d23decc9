//! Words of plans and of commands that explain them.

use std::fmt::Display;

/// A number with its noun: `1 machine`, `2 machines`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The first three of some names, and the number of the others.
pub fn some_of<T: AsRef<str>>(names: &[T]) -> String {
    const MOST: usize = 3;
    let first: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(MOST) {
        0 => first.join(", "),
        more => format!("{}, and {more} more", first.join(", ")),
    }
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
