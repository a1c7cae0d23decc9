//! Partial responses: which fields of an answer are asked for.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields and what is asked for of them. None at all: everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask(pub BTreeMap<String, Mask>);

impl Mask {
    /// Reads `a,b/c,d(e,f)`, or `a,b.c,d.e,d.f` as in a header. `None` if it is no mask.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mask = Self::list(&mut rest)?;
        rest.is_empty().then_some(mask)
    }

    fn list(rest: &mut &str) -> Option<Self> {
        let mut mask = Self::default();
        loop {
            let (name, below) = Self::field(rest)?;
            mask.0.entry(name).or_default().add(below);
            match rest.strip_prefix(',') {
                Some(more) => *rest = more,
                None => return Some(mask),
            }
        }
    }

    fn field(rest: &mut &str) -> Option<(String, Self)> {
        let end = rest.find([',', '/', '.', '(', ')']).unwrap_or(rest.len());
        let (name, more) = rest.split_at(end);
        *rest = more;
        let below = if let Some(more) = rest.strip_prefix(['/', '.']) {
            *rest = more;
            Self([Self::field(rest)?].into())
        } else if let Some(more) = rest.strip_prefix('(') {
            *rest = more;
            let below = Self::list(rest)?;
            *rest = rest.strip_prefix(')')?;
            below
        } else {
            Self::default()
        };
        (!name.is_empty()).then(|| (name.to_owned(), below))
    }

    fn add(&mut self, other: Self) {
        for (name, below) in other.0 {
            self.0.entry(name).or_default().add(below);
        }
    }

    /// Reduces an answer to the fields that are asked for.
    pub fn apply(&self, value: &Value) -> Value {
        match value {
            _ if self.0.is_empty() => value.clone(),
            Value::Array(items) => items.iter().map(|item| self.apply(item)).collect(),
            Value::Object(fields) => {
                let kept =
                    self.0.iter().filter_map(|(name, below)| Some((name.clone(), below.apply(fields.get(name)?))));
                Value::Object(kept.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}
