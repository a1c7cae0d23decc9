use serde::de::DeserializeOwned;
use serde_saphyr::{MergeKeyPolicy, Options};

/// Limits of a YAML text.
#[derive(Clone, Copy, Debug)]
pub struct YamlLimits {
    bytes: usize,
    depth: usize,
    nodes: usize,
}

impl YamlLimits {
    /// A kubeconfig in a Secret: some thousand clusters.
    pub const KUBECONFIG: Self = Self { bytes: 1 << 20, depth: 32, nodes: 20_000 };
    /// Files that a user names: some ten thousand machines.
    pub const FILES: Self = Self { bytes: 64 << 20, depth: 127, nodes: 20_000_000 };

    fn options(self) -> Options {
        serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: self.depth,
                flow_nesting_limit: self.depth,
                max_nodes: self.nodes,
                max_events: self.nodes.saturating_mul(2),
                max_documents: self.nodes,
            },
            // Few bytes can stand for many nodes.
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: self.nodes,
            },
            // As YAML 1.2 and JSON, and unlike YAML 1.1: "no" is a text, and "<<" is a key.
            strict_booleans: true,
            merge_keys: MergeKeyPolicy::AsOrdinary,
            // A snippet may contain a credential.
            with_snippet: false,
            emit_comments: false,
        }
    }
}

/// A YAML text that cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The text is too large.
    #[error("more than {} KiB", .most / 1024)]
    TooLarge {
        /// The limit, in bytes.
        most: usize,
    },
    /// The text is no YAML, is nested too deep, has too many nodes, or is another value. The message may quote the text.
    #[error("{0}")]
    Invalid(Box<serde_saphyr::Error>),
}

impl YamlError {
    /// Line and column of the cause, from 1.
    pub fn place(&self) -> Option<(u64, u64)> {
        match self {
            Self::TooLarge { .. } => None,
            Self::Invalid(error) => error.location().map(|place| (place.line(), place.column())),
        }
    }
}

/// Decodes a text with one document.
///
/// # Errors
/// The text is beyond the limits, is no YAML, has several documents, or is another value.
pub fn yaml<T: DeserializeOwned>(text: &str, limits: YamlLimits) -> Result<T, YamlError> {
    check_size(text, limits)?;
    serde_saphyr::from_str_with_options(text, limits.options()).map_err(|error| YamlError::Invalid(Box::new(error)))
}

/// Decodes the documents of a text, without empty ones, until the first that cannot be decoded. The second value is its
/// error.
pub fn yaml_documents<T: DeserializeOwned>(text: &str, limits: YamlLimits) -> (Vec<T>, Option<YamlError>) {
    if let Err(error) = check_size(text, limits) {
        return (Vec::new(), Some(error));
    }
    let mut documents = Vec::new();
    let mut bytes = text.as_bytes();
    for document in serde_saphyr::read_with_options(&mut bytes, limits.options()) {
        match document {
            Ok(document) => documents.push(document),
            Err(error) => return (documents, Some(YamlError::Invalid(Box::new(error)))),
        }
    }
    (documents, None)
}

fn check_size(text: &str, limits: YamlLimits) -> Result<(), YamlError> {
    if text.len() > limits.bytes { Err(YamlError::TooLarge { most: limits.bytes }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// Longer than any of the texts below takes in a debug build, and much shorter than quadratic time: minutes.
    const LINEAR: Duration = Duration::from_secs(60);

    /// A list of two lists of two lists, and so on.
    fn doubled(times: usize) -> String {
        let line = |n: usize| format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1);
        (0..times).map(line).fold("a0: &a0 [x]\n".to_owned(), |all, one| format!("{all}{one}"))
    }

    /// Texts of the largest size that take a parser long, or much memory.
    #[rstest]
    #[case::lists("[".repeat(1_000_000))]
    #[case::lists_of_a_field(format!("a: {}{}", "[".repeat(500_000), "]".repeat(500_000)))]
    #[case::maps("{a: ".repeat(250_000))]
    #[case::block_lists("- ".repeat(500_000))]
    #[case::block_maps((0..1_400).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect())]
    #[case::keys("? ".repeat(500_000))]
    #[case::quoted("\"".repeat(1_000_000))]
    #[case::tags("!a ".repeat(300_000))]
    #[case::anchors("&a ".repeat(300_000))]
    #[case::aliases(doubled(30))]
    #[case::aliases_of_one(format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(1000), "*a, ".repeat(200_000)))]
    #[case::list_of_many(format!("[{}]", "a, ".repeat(330_000)))]
    #[case::colons(": ".repeat(500_000))]
    #[case::documents("---\n".repeat(30_000))]
    #[case::too_large("a".repeat((1 << 20) + 1))]
    fn hostile_text_is_refused_at_once(#[case] text: String) {
        let began = Instant::now();
        let read = yaml::<Vec<String>>(&text, YamlLimits::KUBECONFIG);
        let elapsed = began.elapsed();
        assert!(read.is_err() && elapsed < LINEAR, "{elapsed:?}");
        let began = Instant::now();
        let _ = yaml_documents::<Value>(&text, YamlLimits::KUBECONFIG);
        assert!(began.elapsed() < LINEAR, "{:?}", began.elapsed());
    }

    #[test]
    fn depth_is_refused_at_the_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(yaml::<Value>(&nested(32), YamlLimits::KUBECONFIG).is_ok());
        let error = yaml::<Value>(&nested(33), YamlLimits::KUBECONFIG).unwrap_err();
        assert_eq!(error.place(), Some((1, 33)), "{error}");
    }

    #[test]
    fn documents_before_one_that_cannot_be_read_are_returned() {
        let (read, error) = yaml_documents::<Value>("a: 1\n---\n---\nb: [", YamlLimits::FILES);
        assert_eq!((read, error.is_some()), (vec![json!({ "a": 1 })], true));
        let (read, error) = yaml_documents::<Value>("---\n# nothing\n", YamlLimits::FILES);
        assert!(read.is_empty() && error.is_none(), "{read:?} {error:?}");
    }

    /// As `serde_yaml_ng` reads it, with which objects are printed.
    #[rstest]
    #[case::words("[no, yes, on, off, y, n, True, FALSE, null, ~, Null]")]
    #[case::numbers("[0, 0o17, 0x1F, 1e3, 1.0, -5, +5, 18446744073709551615, 1:30]")]
    #[case::texts("['1', \"true\", 2024-01-01, 1.2.3, v1, 10m, 1Gi]")]
    #[case::keys("{1: a, true: b, <<: c, 'x y': d}")]
    #[case::merge("a: &a {b: 1}\nc:\n  <<: *a\n  d: 2\n")]
    #[case::blocks("a: |\n  x: [\n  y\nb: >-\n  one\n  two\nc:\nd: ''\n")]
    fn values_are_as_before(#[case] text: &str) {
        assert_eq!(yaml::<Value>(text, YamlLimits::FILES).unwrap(), serde_yaml_ng::from_str::<Value>(text).unwrap());
    }
}
