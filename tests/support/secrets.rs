//! Searches for values of Secrets in places where they must not be.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use k8s_openapi::ByteString;

use super::objects::PLANTED;

/// Of the Secrets of simulated clouds: user data, a key of AWS, the key and the token of an account of Google.
const OF_CLOUDS: [&str; 4] = ["hunter2-hunter2", "top-secret-key", "BEGIN PRIVATE KEY", "ya29.token-"];

static NEEDLES: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let values = std::iter::once(PLANTED).chain(OF_CLOUDS);
    AhoCorasick::new(values.flat_map(forms)).unwrap()
});

/// The text contains a secret.
pub fn are_in(text: &str) -> bool {
    NEEDLES.is_match(text)
}

/// A value as it is, and as it is in a longer text that is encoded in Base64: there are three ways, depending on where it
/// begins.
pub fn forms(value: &str) -> Vec<String> {
    let encoded = (0..3).map(|before| {
        let bytes = [vec![b' '; before], value.as_bytes().to_vec()].concat();
        let text = serde_json::to_value(ByteString(bytes)).unwrap().as_str().unwrap().to_owned();
        // The first and last letters depend on the adjacent bytes.
        text[4..text.len() - 4].to_owned()
    });
    std::iter::once(value.to_owned()).chain(encoded).collect()
}
