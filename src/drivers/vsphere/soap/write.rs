//! Writes XML. All texts are escaped.

use roxmltree::Node;

use super::{ENVELOPE, INSTANCE, Ref, read::object_kind};

/// Elements of a request, in the order of vSphere's schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Xml(String);

impl Xml {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// An element with a text.
    pub(crate) fn text(self, name: &str, text: &str) -> Self {
        self.element(name, "", &Self(escaped(text)))
    }

    /// An element with a number, or with true or false.
    pub(crate) fn value(self, name: &str, value: impl ToString) -> Self {
        self.text(name, &value.to_string())
    }

    /// A text with its type, for elements of any type.
    pub(crate) fn string(self, name: &str, text: &str) -> Self {
        self.element(name, r#" xsi:type="xsd:string""#, &Self(escaped(text)))
    }

    /// An element with others in it.
    pub(crate) fn tag(self, name: &str, content: &Self) -> Self {
        self.element(name, "", content)
    }

    /// An element of a type that its name does not determine.
    pub(crate) fn typed(self, name: &str, kind: &str, content: &Self) -> Self {
        self.element(name, &format!(r#" xsi:type="{}""#, escaped(kind)), content)
    }

    pub(crate) fn reference(self, name: &str, to: &Ref) -> Self {
        self.element(name, &format!(r#" type="{}""#, escaped(&to.kind)), &Self(escaped(&to.id)))
    }

    /// Adds a value, if there is one.
    pub(crate) fn with<T>(self, value: Option<T>, add: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => add(self, value),
            None => self,
        }
    }

    /// Adds each value.
    pub(crate) fn each<T>(self, values: impl IntoIterator<Item = T>, add: impl Fn(Self, T) -> Self) -> Self {
        values.into_iter().fold(self, add)
    }

    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.0.push_str(&other.0);
        self
    }

    fn element(mut self, name: &str, attributes: &str, content: &Self) -> Self {
        self.0.push_str(&format!("<{name}{attributes}>{}</{name}>", content.0));
        self
    }
}

/// The envelope of a call of a method of an object.
pub(super) fn envelope(method: &str, this: &Ref, arguments: &Xml) -> String {
    let content = Xml::new().reference("_this", this).and(arguments);
    let call = Xml::new().element(method, r#" xmlns="urn:vim25""#, &content);
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="{ENVELOPE}" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="{INSTANCE}"><soapenv:Body>{}</soapenv:Body></soapenv:Envelope>"#,
        call.0
    )
}

/// The content of an element that was read, with some of its elements replaced or, before the first element that `before` names,
/// added. vSphere takes changed values only whole.
pub(crate) fn echo(node: Node<'_, '_>, replaced: &[(&str, Xml)], before: &[&str]) -> Xml {
    let mut xml = Xml::new();
    let mut left: Vec<&(&str, Xml)> = replaced.iter().collect();
    for child in node.children().filter(Node::is_element) {
        let name = child.tag_name().name();
        if let Some(position) = left.iter().position(|(other, _)| *other == name) {
            xml = xml.and(&left.remove(position).1);
            continue;
        }
        if replaced.iter().any(|(other, _)| *other == name) {
            continue;
        }
        if before.contains(&name) {
            xml = left.drain(..).fold(xml, |xml, (_, added)| xml.and(added));
        }
        xml = xml.and(&whole(child));
    }
    left.into_iter().fold(xml, |xml, (_, added)| xml.and(added))
}

/// An element that was read, as it was.
fn whole(node: Node<'_, '_>) -> Xml {
    let kind = node.attribute((INSTANCE, "type")).map(|kind| format!(r#" xsi:type="{}""#, escaped(kind)));
    let object = object_kind(node).map(|kind| format!(r#" type="{}""#, escaped(kind)));
    let attributes: String = kind.into_iter().chain(object).collect();
    let content = if node.children().any(|child| child.is_element()) {
        echo(node, &[], &[])
    } else {
        Xml(escaped(node.text().unwrap_or_default()))
    };
    Xml::new().element(node.tag_name().name(), &attributes, &content)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // A parser would read it as a line break.
            '\r' => escaped.push_str("&#13;"),
            '\t' | '\n' => escaped.push(c),
            // XML has no form for them.
            c if c.is_control() || ['\u{fffe}', '\u{ffff}'].contains(&c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;
    use rstest::rstest;

    #[test]
    fn an_envelope_names_the_object_and_its_method() {
        let arguments = Xml::new().text("name", "a<b>&\"c\"").value("key", 7).string("value", "v");
        let text = envelope("SetField", &Ref::new("CustomFieldsManager", "x\"y"), &arguments);
        let document = Document::parse(&text).unwrap();
        let call = document.descendants().find(|node| node.has_tag_name(("urn:vim25", "SetField"))).unwrap();
        let this = call.first_element_child().unwrap();
        assert_eq!((this.attribute("type"), this.text()), (Some("CustomFieldsManager"), Some("x\"y")));
        let texts: Vec<_> = call.children().filter_map(|node| node.text()).collect();
        assert_eq!(texts, ["x\"y", "a<b>&\"c\"", "7", "v"]);
        assert_eq!(call.last_element_child().unwrap().attribute((INSTANCE, "type")), Some("xsd:string"));
    }

    const DEVICE: &str = r#"<d xmlns="urn:vim25" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><key>4000</key><backing i:type="Old"><port><a>&amp;</a></port></backing><unitNumber>7</unitNumber><ds type="Datastore">ds-1</ds></d>"#;

    #[test]
    fn a_device_that_was_read_is_sent_back_with_its_changes() {
        let document = Document::parse(DEVICE).unwrap();
        let device = document.root_element();
        let backing = Xml::new().typed("backing", "New", &Xml::new().text("a", "b"));
        assert_eq!(
            echo(device, &[("backing", backing)], &[]).0,
            r#"<key>4000</key><backing xsi:type="New"><a>b</a></backing><unitNumber>7</unitNumber><ds type="Datastore">ds-1</ds>"#
        );
        assert_eq!(
            echo(device, &[], &[]).0,
            r#"<key>4000</key><backing xsi:type="Old"><port><a>&amp;</a></port></backing><unitNumber>7</unitNumber><ds type="Datastore">ds-1</ds>"#
        );
        let size = || Xml::new().value("size", 1);
        assert!(echo(device, &[("size", size())], &["unitNumber"]).0.contains("</backing><size>1</size><unitNumber>"));
        assert!(echo(device, &[("size", size())], &[]).0.ends_with("</ds><size>1</size>"));
    }

    #[rstest]
    #[case("", "")]
    #[case("a\r\nb\tc", "a\r\nb\tc")]
    #[case::markup("]]><b/>&amp;<!-- 'x' -->", "]]><b/>&amp;<!-- 'x' -->")]
    #[case::of_many_languages("ä 漢字 🦀", "ä 漢字 🦀")]
    #[case::control_characters("a\0b\u{1f}c\u{ffff}\u{85}", "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}")]
    fn a_text_arrives_as_it_is_but_for_control_characters(#[case] text: &str, #[case] expected: &str) {
        let envelope = envelope("M", &Ref::new("T", "i"), &Xml::new().text("text", text));
        let document = Document::parse(&envelope).unwrap();
        let found = document.descendants().find(|node| node.has_tag_name(("urn:vim25", "text"))).unwrap();
        assert_eq!(found.text().unwrap_or_default(), expected);
    }
}
