//! Additions to the `nodeTemplate` of classes in a text of YAML. All other lines stay as they are, with their comments. Pure.

use serde_json::{Value, json};

use super::additions::ClassCompletion;
use crate::api::{
    decode::{self, YamlLimits},
    machine::MachineClass,
};

const TEMPLATE: &str = "nodeTemplate";
const CAPACITY: &str = "capacity";

/// The documents of a file.
pub(super) struct ClassDocuments(Vec<ClassDocument>);

struct ClassDocument {
    lines: Vec<String>,
    object: Value,
}

/// The text of a class has a form in which nothing can be added.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("its nodeTemplate is written in a form that mcm cannot add to: add the fields by hand")]
pub(super) struct UnknownForm;

impl ClassDocuments {
    /// Splits a text at the lines that begin documents.
    pub fn split(text: &str) -> Self {
        let mut all: Vec<Vec<String>> = vec![Vec::new()];
        for line in text.split_inclusive('\n') {
            let is_marker = line.trim_end() == "---" || line.starts_with("--- ");
            if is_marker
                && let Some(last) = all.last()
                && !last.is_empty()
            {
                all.push(Vec::new());
            }
            if let Some(last) = all.last_mut() {
                last.push(line.to_owned());
            }
        }
        let document = |lines: Vec<String>| ClassDocument { object: parsed(&lines).unwrap_or_default(), lines };
        Self(all.into_iter().map(document).collect())
    }

    /// The number of the document with a class.
    pub fn place_of(&self, class: &MachineClass) -> Option<usize> {
        let metadata = &class.metadata;
        let namespace = |document: &ClassDocument| match &document.object["metadata"]["namespace"] {
            Value::String(namespace) => Some(namespace.clone()),
            // That of the typed class is a default.
            _ => metadata.namespace.clone(),
        };
        self.0.iter().position(|document| {
            document.object["kind"] == "MachineClass"
                && document.object["metadata"]["name"].as_str() == metadata.name.as_deref()
                && namespace(document) == metadata.namespace
        })
    }

    pub fn object(&self, place: usize) -> &Value {
        self.0.get(place).map_or(&Value::Null, |document| &document.object)
    }

    /// Adds fields to a class.
    ///
    /// # Errors
    /// The text has a form in which they would not be read as expected; then it stays as it is.
    pub fn add(&mut self, place: usize, completion: &ClassCompletion) -> Result<(), UnknownForm> {
        let Some(document) = self.0.get_mut(place).filter(|_| !completion.is_empty()) else { return Ok(()) };
        let mut expected = document.object.clone();
        for (name, value) in &completion.resources {
            expected[TEMPLATE][CAPACITY][name] = json!(value);
        }
        for (name, value) in &completion.fields {
            expected[TEMPLATE][name] = json!(value);
        }
        let lines = added(&document.lines, completion).ok_or(UnknownForm)?;
        if parsed(&lines).as_ref() != Some(&expected) {
            return Err(UnknownForm);
        }
        *document = ClassDocument { lines, object: expected };
        Ok(())
    }

    pub fn text(&self) -> String {
        self.0.iter().flat_map(|document| &document.lines).map(String::as_str).collect()
    }
}

/// The object of a document, if it is one.
fn parsed(lines: &[String]) -> Option<Value> {
    let (mut all, error) = decode::yaml_documents::<Value>(&lines.concat(), YamlLimits::FILES);
    all.retain(|one| !one.is_null());
    match (error, all.len()) {
        (None, 1) => all.pop(),
        _ => None,
    }
}

/// The lines with the additions; `None` if the fields are not in lines.
fn added(lines: &[String], completion: &ClassCompletion) -> Option<Vec<String>> {
    let mut lines = lines.to_vec();
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push('\n');
    }
    let Some(template) = key_line(&lines, 0..lines.len(), 0, TEMPLATE) else {
        let end = end_of(&lines, 0..lines.len());
        let mut block = vec![format!("{TEMPLATE}:\n"), format!("  {CAPACITY}:\n")];
        block.extend(entries(4, &completion.resources));
        block.extend(entries(2, &completion.fields));
        lines.splice(end..end, block);
        return Some(lines);
    };
    rest_of(lines.get(template)?).filter(|rest| rest.is_empty())?;
    let block = block_below(&lines, template, 0);
    let indent = lines.get(block.clone())?.iter().find(|line| has_content(line)).map_or(2, |line| indent_of(line));
    let end = end_of(&lines, block.clone());
    lines.splice(end..end, entries(indent, &completion.fields));
    if completion.resources.is_empty() {
        return Some(lines);
    }
    let Some(capacity) = key_line(&lines, block.clone(), indent, CAPACITY) else {
        let head = std::iter::once(format!("{}{CAPACITY}:\n", " ".repeat(indent)));
        let all: Vec<String> = head.chain(entries(indent + 2, &completion.resources)).collect();
        lines.splice(template + 1..template + 1, all);
        return Some(lines);
    };
    let line = lines.get(capacity)?;
    match rest_of(line)? {
        "" => {
            let block = block_below(&lines, capacity, indent);
            let deeper = lines.get(block.clone())?.iter().find(|line| has_content(line));
            let deeper = deeper.map_or(indent + 2, |line| indent_of(line));
            let end = end_of(&lines, block);
            lines.splice(end..end, entries(deeper, &completion.resources));
        }
        rest if rest.starts_with('{') && rest.ends_with('}') => {
            let items: Vec<String> =
                completion.resources.iter().map(|(name, value)| format!("{name}: {}", quoted(value))).collect();
            let inner = rest.strip_prefix('{')?.strip_suffix('}')?.trim();
            let separator = if inner.is_empty() { "" } else { ", " };
            let changed = line.replacen(rest, &format!("{{{inner}{separator}{}}}", items.join(", ")), 1);
            *lines.get_mut(capacity)? = changed;
        }
        _ => return None,
    }
    Some(lines)
}

/// Lines of a mapping.
fn entries(indent: usize, all: &[(String, String)]) -> Vec<String> {
    let line = |(name, value): &(String, String)| format!("{}{name}: {}\n", " ".repeat(indent), quoted(value));
    all.iter().map(line).collect()
}

/// A text as JSON writes it, which is no number in YAML.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// A line that is neither empty nor a comment.
fn has_content(line: &str) -> bool {
    let text = line.trim();
    !text.is_empty() && !text.starts_with('#') && text != "---" && text != "..."
}

/// The line with a key of this indentation.
fn key_line(lines: &[String], within: std::ops::Range<usize>, indent: usize, key: &str) -> Option<usize> {
    let is_key = |line: &str| {
        indent_of(line) == indent && line.trim_start().strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))
    };
    within.clone().zip(lines.get(within)?).find(|(_, line)| is_key(line)).map(|(number, _)| number)
}

/// The text after the colon of a line, without its comment.
fn rest_of(line: &str) -> Option<&str> {
    let rest = line.split_once(':')?.1;
    let rest = rest.split_once(" #").map_or(rest, |(rest, _)| rest);
    Some(rest.trim())
}

/// The lines below a key: those with a larger indentation.
fn block_below(lines: &[String], key: usize, indent: usize) -> std::ops::Range<usize> {
    let first = key + 1;
    let rest = lines.iter().skip(first);
    let length = rest.take_while(|line| !has_content(line) || indent_of(line) > indent).count();
    first..first + length
}

/// The place after the last line with content.
fn end_of(lines: &[String], block: std::ops::Range<usize>) -> usize {
    let last = lines.get(block.clone()).and_then(|lines| lines.iter().rposition(|line| has_content(line)));
    last.map_or(block.start, |last| block.start + last + 1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const HEAD: &str =
        "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata:\n  name: c\nprovider: p\n";

    fn completion() -> ClassCompletion {
        let own = |all: &[(&str, &str)]| all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        ClassCompletion { resources: own(&[("cpu", "2")]), fields: own(&[("zone", "z")]), ..ClassCompletion::default() }
    }

    fn class() -> MachineClass {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "default"}})).unwrap()
    }

    fn edited(text: &str) -> Result<String, UnknownForm> {
        let mut documents = ClassDocuments::split(text);
        let place = documents.place_of(&class()).unwrap();
        documents.add(place, &completion()).map(|()| documents.text())
    }

    #[rstest]
    #[case::without_it("# end\n", "nodeTemplate:\n  capacity:\n    cpu: \"2\"\n  zone: \"z\"\n# end\n")]
    #[case::in_lines(
        "nodeTemplate: # Of a Node.\n    capacity:\n        gpu: 0 # none\n\n    region: r\nproviderSpec: {}\n",
        "nodeTemplate: # Of a Node.\n    capacity:\n        gpu: 0 # none\n        cpu: \"2\"\n\n    region: r\n    zone: \"z\"\nproviderSpec: {}\n"
    )]
    #[case::in_braces(
        "nodeTemplate:\n  capacity: {gpu: 0} # none\n",
        "nodeTemplate:\n  capacity: {gpu: 0, cpu: \"2\"} # none\n  zone: \"z\"\n"
    )]
    #[case::in_empty_braces(
        "nodeTemplate:\n  capacity: {}\n",
        "nodeTemplate:\n  capacity: {cpu: \"2\"}\n  zone: \"z\"\n"
    )]
    #[case::without_capacity(
        "nodeTemplate:\n  region: r\n",
        "nodeTemplate:\n  capacity:\n    cpu: \"2\"\n  region: r\n  zone: \"z\"\n"
    )]
    fn lines_are_added_and_others_stay(#[case] before: &str, #[case] after: &str) {
        assert_eq!(edited(&format!("{HEAD}{before}")), Ok(format!("{HEAD}{after}")));
    }

    #[rstest]
    #[case::braces("nodeTemplate: {capacity: {gpu: 0}}\n")]
    #[case::quoted_key("\"nodeTemplate\":\n  region: r\n")]
    #[case::alias("a: &a {region: r}\nnodeTemplate: *a\n")]
    #[case::braces_over_lines("nodeTemplate:\n  capacity: {\n    gpu: 0}\n")]
    fn a_form_that_is_not_known_stays(#[case] text: &str) {
        let mut documents = ClassDocuments::split(&format!("{HEAD}{text}"));
        let place = documents.place_of(&class()).unwrap();
        assert_eq!(documents.add(place, &completion()), Err(UnknownForm));
        assert_eq!(documents.text(), format!("{HEAD}{text}"));
    }

    #[test]
    fn only_the_document_of_the_class_changes() {
        let other = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: c}\n";
        let text = edited(&format!("{other}---\n{HEAD}---\n{}", HEAD.replace("name: c", "name: d"))).unwrap();
        assert_eq!(text.matches("nodeTemplate:").count(), 1);
        assert!(text.starts_with(&format!("{other}---\n{HEAD}nodeTemplate:\n")), "{text}");
        assert!(text.ends_with("provider: p\n"), "{text}");
    }
}
