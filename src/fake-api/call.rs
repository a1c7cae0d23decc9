//! Requests, as an API server understands them.

use std::{collections::BTreeMap, sync::Arc};

use http::{Method, request::Parts};
use jiff::Timestamp;
use serde_json::Value;

use super::kinds::{self, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    MergePatch,
    StrategicPatch,
    Delete,
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
    /// `status`, `eviction` or nothing.
    pub subresource: String,
    pub query: BTreeMap<String, String>,
    /// Only metadata is requested.
    pub is_partial: bool,
    pub body: Arc<Value>,
}

impl ApiCall {
    pub(super) fn parse(caller: &Arc<str>, at: Timestamp, parts: &Parts, body: &[u8]) -> Option<Self> {
        let (kind, namespace, rest) = kinds::find(parts.uri.path())?;
        let (name, subresource) = match rest.as_slice() {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, subresource] => (*name, *subresource),
            _ => return None,
        };
        let query = query(parts.uri.query().unwrap_or_default());
        let header = |name: http::HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let is_watch = query.get("watch").is_some_and(|value| value == "true" || value == "1");
        let verb = match parts.method {
            Method::GET if is_watch => ApiVerb::Watch,
            Method::GET if name.is_empty() => ApiVerb::List,
            Method::GET => ApiVerb::Get,
            Method::POST => ApiVerb::Create,
            Method::PUT => ApiVerb::Update,
            Method::DELETE => ApiVerb::Delete,
            Method::PATCH => match header(http::header::CONTENT_TYPE)? {
                "application/merge-patch+json" => ApiVerb::MergePatch,
                "application/strategic-merge-patch+json" if !kind.is_custom => ApiVerb::StrategicPatch,
                _ => return None,
            },
            _ => return None,
        };
        Some(Self {
            caller: Arc::clone(caller),
            at,
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            is_partial: header(http::header::ACCEPT).is_some_and(|accept| accept.contains("as=PartialObjectMetadata")),
            query,
            body: Arc::new(if body.is_empty() { Value::Null } else { serde_json::from_slice(body).ok()? }),
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
            is_partial: false,
            body: Arc::new(Value::Null),
        }
    }

    /// A write that is answered and not carried out.
    pub fn is_dry_run(&self) -> bool {
        matches!(self.verb, ApiVerb::Create | ApiVerb::MergePatch)
            && self.query.get("dryRun").is_some_and(|value| value == "All")
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
        let name = match (&*self.name, self.body["metadata"]["name"].as_str()) {
            ("", Some(name)) => name,
            (name, _) => name,
        };
        let subresource = if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{:?} {} {name}{subresource}", self.verb, self.kind.name)
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
