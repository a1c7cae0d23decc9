//! Label and field selectors of lists and watches.

use serde_json::Value;

use super::{call::ApiCall, object::ServerObject, refusal::RequestRefusal};

/// Selects objects by their namespace, labels and fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectFilter {
    namespace: String,
    labels: Vec<LabelTerm>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTerm {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    /// JSON pointer of the field.
    pointer: String,
    value: String,
    is_equal: bool,
}

impl ObjectFilter {
    /// The filter of a request. An invalid selector is refused: it must not select all objects, or none.
    pub(super) fn from_call(call: &ApiCall) -> Result<Self, RequestRefusal> {
        let selector = |name: &str| call.query.get(name).map(String::as_str).unwrap_or_default();
        let (namespace, name) = (call.namespace.clone(), &call.name);
        let mut fields = terms(selector("fieldSelector")).map(field_term).collect::<Result<Vec<_>, _>>()?;
        if !name.is_empty() {
            fields.push(FieldTerm { pointer: "/metadata/name".to_owned(), value: name.clone(), is_equal: true });
        }
        Ok(Self {
            namespace,
            labels: terms(selector("labelSelector")).map(label_term).collect::<Result<_, _>>()?,
            fields,
        })
    }

    pub(super) fn selects(&self, object: &ServerObject) -> bool {
        let meta = &object.value["metadata"];
        let in_namespace = self.namespace.is_empty() || meta["namespace"].as_str() == Some(&self.namespace);
        in_namespace
            && self.fields.iter().all(|term| (text_at(&object.value, &term.pointer) == term.value) == term.is_equal)
            && self.labels.iter().all(|term| term.matches(&meta["labels"]))
    }
}

impl LabelTerm {
    fn matches(&self, labels: &Value) -> bool {
        match self {
            Self::In(key, values) => labels[key].as_str().is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(key, values) => labels[key].as_str().is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Exists(key) => labels[key].is_string(),
            Self::Absent(key) => !labels[key].is_string(),
        }
    }
}

/// The text of a field; empty if the field is absent.
fn text_at(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The terms between commas that are in no parentheses.
fn terms(selector: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let parts = selector.split(move |character| {
        match character {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts.map(str::trim).filter(|term| !term.is_empty())
}

fn field_term(term: &str) -> Result<FieldTerm, RequestRefusal> {
    let (field, value, is_equal) = compared(term).ok_or_else(|| refused("field", term))?;
    let pointer = format!("/{}", field.replace('.', "/"));
    Ok(FieldTerm { pointer, value: value.to_owned(), is_equal })
}

fn label_term(term: &str) -> Result<LabelTerm, RequestRefusal> {
    if let Some(list) = term.strip_suffix(')') {
        let (head, list) = list.split_once('(').ok_or_else(|| refused("label", term))?;
        let values = list.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [key, "in"] => Ok(LabelTerm::In((*key).to_owned(), values)),
            [key, "notin"] => Ok(LabelTerm::NotIn((*key).to_owned(), values)),
            _ => Err(refused("label", term)),
        };
    }
    if let Some((key, value, is_equal)) = compared(term) {
        let (key, values) = (key.to_owned(), vec![value.to_owned()]);
        return Ok(if is_equal { LabelTerm::In(key, values) } else { LabelTerm::NotIn(key, values) });
    }
    let is_key = |key: &str| !key.is_empty() && !key.contains([' ', '(', '!']);
    match term.strip_prefix('!').map_or((term, true), |key| (key.trim(), false)) {
        (key, true) if is_key(key) => Ok(LabelTerm::Exists(key.to_owned())),
        (key, false) if is_key(key) => Ok(LabelTerm::Absent(key.to_owned())),
        _ => Err(refused("label", term)),
    }
}

/// Key and value of a comparison, and true for equality.
fn compared(term: &str) -> Option<(&str, &str, bool)> {
    if let Some((key, value)) = term.split_once("!=") {
        return Some((key.trim(), value.trim(), false));
    }
    let (key, value) = term.split_once('=')?;
    Some((key.trim(), value.trim_start_matches('=').trim(), true))
}

fn refused(what: &str, term: &str) -> RequestRefusal {
    RequestRefusal::new(400, "BadRequest", format!("unable to parse the {what} selector requirement {term:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{call::ApiVerb, kinds::PODS};

    fn filter(selector: &str, text: &str) -> Result<ObjectFilter, RequestRefusal> {
        let mut call = ApiCall::from_outside(ApiVerb::List, &PODS, "demo", "", jiff::Timestamp::UNIX_EPOCH);
        call.query.insert(selector.to_owned(), text.to_owned());
        ObjectFilter::from_call(&call)
    }

    #[test]
    fn labels_and_fields_select_as_kubectl_writes_them() {
        let pod = ServerObject::new(
            json!({
                "metadata": { "name": "p", "namespace": "demo", "labels": { "app": "web", "tier": "front" } },
                "spec": { "nodeName": "n", "priority": 7 },
                "status": { "phase": "Running" },
            }),
            1,
        );
        for (selector, text, expected) in [
            ("labelSelector", "app=web,tier==front", true),
            ("labelSelector", "app!=web", false),
            ("labelSelector", "other!=web", true),
            ("labelSelector", "app in (web, db),tier notin (back)", true),
            ("labelSelector", "app notin (web,db)", false),
            ("labelSelector", "app,!other", true),
            ("labelSelector", "!app", false),
            ("fieldSelector", "spec.nodeName=n,status.phase!=Failed,status.phase!=Succeeded", true),
            ("fieldSelector", "status.phase!=Running", false),
            ("fieldSelector", "spec.priority=7,spec.absent=", true),
        ] {
            assert_eq!(filter(selector, text).unwrap().selects(&pod), expected, "{selector}={text}");
        }
    }

    #[test]
    fn a_selector_that_cannot_be_read_is_refused() {
        for (selector, text) in
            [("labelSelector", "app near (web)"), ("labelSelector", "a b"), ("fieldSelector", "spec")]
        {
            assert_eq!(filter(selector, text).unwrap_err().code, 400, "{text}");
        }
    }
}
