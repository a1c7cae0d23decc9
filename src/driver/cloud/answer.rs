//! An answer over HTTP.

use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;

use super::failure::CloudFailure;

/// An answer, with any status.
#[derive(Clone, Debug, Default)]
pub struct HttpAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

impl HttpAnswer {
    /// The status is a success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of a header, if it is a text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The value in the body.
    ///
    /// # Errors
    /// [`Failure::Unreadable`]: the body is not in JSON, or is another value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CloudFailure> {
        serde_json::from_str(&self.text).map_err(|_| CloudFailure::Unreadable(self.status))
    }
}
