//! Decodes text that others wrote: objects of API servers, Secrets, files.
//!
//! JSON has a limit of depth in its library. YAML has limits of size, depth and number of nodes here.

mod dates;
mod yaml;

use serde::de::DeserializeOwned;

pub use yaml::{YamlError, YamlLimits, yaml, yaml_documents};

/// Decodes JSON. A date that Kubernetes accepts and that cannot be represented becomes the nearest one that can.
///
/// # Errors
/// The text is not JSON, is nested more than 127 deep where a value of any type is read, or is another value. The error begins with
/// the path of the field that cannot be decoded.
pub fn json<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    // Few texts have such a date. The others are decoded without the adapter.
    serde_json::from_str(text).or_else(|_| dates::within_range(text))
}
