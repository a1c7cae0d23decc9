//! Requests, as an API server understands them.

use std::{collections::BTreeMap, sync::Arc};

use http::{Method, request::Parts};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    kinds::{self, Kind},
    refusal::RequestRefusal,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    MergePatch,
    StrategicPatch,
    /// JSON patch (RFC 6902).
    JsonPatch,
    /// A server-side apply.
    Apply,
    Delete,
}

/// The form in which objects are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerShape {
    Full,
    /// Only metadata.
    Metadata,
    /// Rows, as `kubectl get` prints them.
    Table,
}

/// One request.
#[derive(Clone, Debug)]
pub struct ApiCall {
    /// The sender; every client has a name.
    pub caller: Arc<str>,
    /// When it was sent.
    pub at: Timestamp,
    pub verb: ApiVerb,
    pub kind: &'static Kind,
    pub namespace: String,
    /// Empty for lists and creates.
    pub name: String,
    /// `status`, `eviction`, `scale` or nothing.
    pub subresource: String,
    pub query: BTreeMap<String, String>,
    pub shape: AnswerShape,
    pub body: Arc<Value>,
}

impl ApiCall {
    pub(super) fn parse(caller: &Arc<str>, at: Timestamp, parts: &Parts, body: &[u8]) -> Result<Self, RequestRefusal> {
        let unknown = || RequestRefusal::new(404, "NotFound", "the server could not find the requested resource");
        let (kind, namespace, rest) = kinds::find(parts.uri.path()).ok_or_else(unknown)?;
        let (name, subresource) = match rest.as_slice() {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, subresource] if kind.has_subresource(subresource) => (*name, *subresource),
            _ => return Err(unknown()),
        };
        let query = query(parts.uri.query().unwrap_or_default());
        let header = |name: http::HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let is_watch = query.get("watch").is_some_and(|value| value == "true" || value == "1");
        let verb = match parts.method {
            Method::GET if is_watch => ApiVerb::Watch,
            Method::GET if name.is_empty() => ApiVerb::List,
            Method::GET => ApiVerb::Get,
            Method::POST => ApiVerb::Create,
            Method::PUT if !name.is_empty() => ApiVerb::Update,
            Method::DELETE if !name.is_empty() => ApiVerb::Delete,
            Method::PATCH if !name.is_empty() => {
                patch_of(kind, header(http::header::CONTENT_TYPE).unwrap_or_default())?
            }
            _ => {
                let text = "the server does not allow this method on the requested resource";
                return Err(RequestRefusal::new(405, "MethodNotAllowed", text));
            }
        };
        let invalid = |error| RequestRefusal::new(400, "BadRequest", format!("the body is no JSON: {error}"));
        Ok(Self {
            caller: Arc::clone(caller),
            at,
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            shape: AnswerShape::of_header(header(http::header::ACCEPT).unwrap_or_default()),
            query,
            body: Arc::new(if body.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(body).map_err(invalid)?
            }),
        })
    }

    /// A change of an object from outside, not by a client.
    pub(super) fn from_outside(verb: ApiVerb, kind: &'static Kind, namespace: &str, name: &str, at: Timestamp) -> Self {
        Self {
            caller: Arc::from(OUTSIDE),
            at,
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            query: BTreeMap::new(),
            shape: AnswerShape::Full,
            body: Arc::new(Value::Null),
        }
    }

    /// The name in the path, or that in the body of a creation.
    pub(super) fn object_name(&self) -> &str {
        match (&*self.name, self.body["metadata"]["name"].as_str()) {
            ("", Some(name)) => name,
            (name, _) => name,
        }
    }

    /// A write that is answered and not carried out.
    pub fn is_dry_run(&self) -> bool {
        self.query.get("dryRun").is_some_and(|value| value == "All")
    }

    /// The UID without which the write is not carried out.
    pub fn uid(&self) -> Option<&str> {
        match self.verb {
            ApiVerb::Delete => self.body["preconditions"]["uid"].as_str(),
            ApiVerb::Create => self.body["deleteOptions"]["preconditions"]["uid"].as_str(),
            _ => self.body["metadata"]["uid"].as_str(),
        }
    }

    /// The resource version without which the write is not carried out.
    pub fn version(&self) -> Option<&str> {
        let version = match self.verb {
            ApiVerb::Delete => &self.body["preconditions"]["resourceVersion"],
            _ => &self.body["metadata"]["resourceVersion"],
        };
        version.as_str().filter(|version| !version.is_empty())
    }

    /// The subject of the call, in one line.
    #[cfg(any(test, feature = "testing"))]
    pub fn subject(&self) -> String {
        let name = self.object_name();
        let subresource = if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{:?} {} {name}{subresource}", self.verb, self.kind.name)
    }
}

impl AnswerShape {
    /// The first form of an `Accept` header.
    fn of_header(accept: &str) -> Self {
        match accept.split(',').next().unwrap_or_default() {
            first if first.contains("as=Table") => Self::Table,
            first if first.contains("as=PartialObjectMetadata") => Self::Metadata,
            _ => Self::Full,
        }
    }
}

/// The patch with this media type.
fn patch_of(kind: &Kind, media: &str) -> Result<ApiVerb, RequestRefusal> {
    match media.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => Ok(ApiVerb::MergePatch),
        "application/strategic-merge-patch+json" if !kind.is_custom => Ok(ApiVerb::StrategicPatch),
        "application/json-patch+json" => Ok(ApiVerb::JsonPatch),
        "application/apply-patch+yaml" => Ok(ApiVerb::Apply),
        _ => {
            let accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            let text =
                format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
            Err(RequestRefusal::new(415, "UnsupportedMediaType", text))
        }
    }
}

/// The name of a caller that is not a client.
pub const OUTSIDE: &str = "outside";

fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |one: &u8| char::from(*one).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let (high, low) = (digit(high).unwrap_or_default(), digit(low).unwrap_or_default());
                bytes.push(high << 4 | low);
                rest = tail;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
