//! Paths of requests whose parts come from objects, users or other programs.

use kube::core::request;

/// True for a text that can be one part of a path, as it is. All names that an API server takes for the kinds of mcm can. Other texts
/// could lead to another object, or begin a query.
pub(crate) fn is_path_part(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    !text.is_empty() && ![".", ".."].contains(&text) && text.bytes().all(is_plain)
}

/// The path with these parts.
///
/// # Errors
/// A part would not stay one part.
pub fn path_of(parts: &[&str]) -> kube::Result<String> {
    match parts.iter().find(|part| !is_path_part(part)) {
        None => Ok(format!("/{}", parts.join("/"))),
        Some(part) => {
            let reason = format!("{part:?} cannot be a part of the path of a request");
            Err(kube::Error::BuildRequest(request::Error::Validation(reason)))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::name("pool-7f4d9.example", true)]
    #[case::proxied_pod("http:mcm-0:10258", true)]
    #[case::empty("", false)]
    #[case::here(".", false)]
    #[case::up("..", false)]
    #[case::two_parts("a/b", false)]
    #[case::encoded("a%2Fb", false)]
    #[case::query("a?b", false)]
    #[case::fragment("a#b", false)]
    #[case::space("a b", false)]
    #[case::line("a\nb", false)]
    #[case::backslash("a\\b", false)]
    #[case::other_script("ä", false)]
    fn a_part_stays_one_part(#[case] part: &str, #[case] is_part: bool) {
        let path = path_of(&["api", "v1", part]);
        assert_eq!(path.ok(), is_part.then(|| format!("/api/v1/{part}")));
    }
}
