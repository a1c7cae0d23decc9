//! Losses and refusals of a conversion, each with its path.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use serde_json::Value;

/// A value that the other side cannot hold, and that changes no VM if it is ignored. It is kept in the annotation
/// [`super::notes::UNMAPPED`] and restored on the way back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ConversionLoss {
    /// Kind and name of the object.
    pub object: String,
    /// Path of the value in that object, such as `spec.template.spec.taints[0].propagation`.
    pub path: String,
    /// Why it is lost.
    pub reason: String,
    /// The remedy; empty if none is needed.
    pub advice: String,
}

/// A value without which other VMs would live, or die at other times. The object is not converted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ConversionRefusal {
    /// Kind and name of the object.
    pub object: String,
    /// Path of the value in that object; empty if the whole object is meant.
    pub path: String,
    /// Why the object is not converted.
    pub reason: String,
    /// The remedy.
    pub advice: String,
}

impl fmt::Display for ConversionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, [&self.object, &self.path, &self.reason, &self.advice])
    }
}

impl fmt::Display for ConversionLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, [&self.object, &self.path, &self.reason, &self.advice])
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, [object, path, reason, advice]: [&str; 4]) -> fmt::Result {
    write!(f, "{object}: {path}{}{reason}", if path.is_empty() { "" } else { ": " })?;
    if advice.is_empty() { Ok(()) } else { write!(f, "; {advice}") }
}

/// Collects the losses and refusals of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConversionReport {
    object: String,
    /// All losses.
    pub losses: Vec<ConversionLoss>,
    /// All refusals.
    pub refusals: Vec<ConversionRefusal>,
}

impl ConversionReport {
    pub(super) fn new(kind: &str, name: &str) -> Self {
        Self { object: format!("{kind} {name}"), losses: Vec::new(), refusals: Vec::new() }
    }

    /// For the same object, with nothing in it.
    pub(super) fn empty(&self) -> Self {
        Self { object: self.object.clone(), ..Self::default() }
    }

    /// Adds entries of another report that this one lacks.
    pub(super) fn add(&mut self, other: Self) {
        self.losses.extend(other.losses.into_iter().filter(|one| !self.losses.contains(one)).collect::<Vec<_>>());
        self.refusals.extend(other.refusals.into_iter().filter(|one| !self.refusals.contains(one)).collect::<Vec<_>>());
    }

    pub(super) fn lose(&mut self, path: impl Into<String>, reason: impl Into<String>, advice: impl Into<String>) {
        let (object, path) = (self.object.clone(), path.into());
        self.losses.push(ConversionLoss { object, path, reason: reason.into(), advice: advice.into() });
    }

    pub(super) fn refuse(&mut self, path: impl Into<String>, reason: impl Into<String>, advice: impl Into<String>) {
        let (object, path) = (self.object.clone(), path.into());
        self.refusals.push(ConversionRefusal { object, path, reason: reason.into(), advice: advice.into() });
    }
}

/// Joins what is said of several objects of one kind in the same words, in the place of the first.
pub(super) fn merged<T>(all: Vec<T>, parts: impl Fn(&mut T) -> (&mut String, String)) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    let mut positions: BTreeMap<(String, String), usize> = BTreeMap::new();
    for mut one in all {
        let (object, said) = parts(&mut one);
        let (kind, name) = object.split_once(' ').unwrap_or((object.as_str(), ""));
        let (key, name) = ((kind.to_owned(), said), name.to_owned());
        match positions.get(&key).and_then(|position| kept.get_mut(*position)) {
            Some(first) => {
                let object = parts(first).0;
                let is_there = object.split_once(' ').is_some_and(|(_, all)| all.split(", ").any(|one| one == name));
                if !is_there {
                    object.push_str(&format!(", {name}"));
                }
            }
            None => {
                positions.insert(key, kept.len());
                kept.push(one);
            }
        }
    }
    kept
}

/// The result for one object.
#[derive(Debug, Default)]
pub(super) struct ObjectConversion {
    pub objects: Vec<Value>,
    /// Kinds and names of native objects that were derived from an object of Cluster API, and are part of `objects` now.
    pub superseded: Vec<(&'static str, String)>,
}

impl From<Vec<Value>> for ObjectConversion {
    fn from(objects: Vec<Value>) -> Self {
        Self { objects, superseded: Vec::new() }
    }
}
