//! Looks for the value that stands in Secrets and must stand nowhere else.

use std::sync::LazyLock;

use k8s_openapi::ByteString;

use super::objects::PLANTED;

static FORMS: LazyLock<Vec<String>> = LazyLock::new(|| forms(PLANTED));

/// Whether a text contains it.
pub fn are_in(text: &str) -> bool {
    FORMS.iter().any(|form| text.contains(form))
}

/// A value as it is, and as it is in a longer text that is encoded in Base64: there are three ways, depending on where it
/// begins.
pub fn forms(value: &str) -> Vec<String> {
    let encoded = (0..3).map(|before| {
        let bytes = [vec![b' '; before], value.as_bytes().to_vec()].concat();
        let text = serde_json::to_value(ByteString(bytes)).unwrap().as_str().unwrap().to_owned();
        // The first and last letters depend on what is beside it.
        text[4..text.len() - 4].to_owned()
    });
    std::iter::once(value.to_owned()).chain(encoded).collect()
}
