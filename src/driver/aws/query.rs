//! Requests and answers of AWS's query protocol: parameters in a form, answers in XML.

use roxmltree::{Document, Node, ParsingOptions};

/// Errors have some ten nodes.
const MOST_NODES_OF_ERROR: u32 = 10_000;

/// An action with its parameters, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    service: &'static str,
    parameters: Vec<(String, String)>,
}

impl Query {
    /// `service` is what the metrics call it.
    pub(super) fn new(action: &str, version: &str, service: &'static str) -> Self {
        let parameters = [("Action", action), ("Version", version)];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { service, parameters }
    }

    pub(super) fn action(&self) -> &str {
        self.parameters.first().map_or("", |(_, action)| action)
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(&self) -> bool {
        ["Describe", "Get"].iter().any(|start| self.action().starts_with(start))
    }

    pub(super) const fn service(&self) -> &'static str {
        self.service
    }

    /// Sets a parameter.
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl ToString) {
        self.parameters.push((name.into(), value.to_string()));
    }

    /// Sets a parameter, if there is a value.
    pub(super) fn maybe(&mut self, name: impl Into<String>, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// The body of the request.
    pub(super) fn encoded(&self) -> String {
        let pairs: Vec<String> =
            self.parameters.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        pairs.join("&")
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

/// The code and message of an error, in EC2's form or that of other services. `None` if the text is no error of AWS.
pub(super) fn error_in(text: &str) -> Option<(String, String)> {
    let options = ParsingOptions { nodes_limit: MOST_NODES_OF_ERROR, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).ok()?;
    let error = document.descendants().find(|node| node.tag_name().name() == "Error")?;
    Some((text_of(error, "Code")?.to_owned(), text_of(error, "Message").unwrap_or_default().to_owned()))
}

/// A child by its name, whatever its namespace.
pub(super) fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.tag_name().name() == name)
}

/// The items of a list.
pub(super) fn items<'a, 'input: 'a>(node: Node<'a, 'input>, list: &str) -> impl Iterator<Item = Node<'a, 'input>> {
    child(node, list).into_iter().flat_map(|list| list.children().filter(|one| one.tag_name().name() == "item"))
}

/// The text of a child; `None` if it is empty.
pub(super) fn text_of<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name)?.text().map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn parameters_are_escaped() {
        let mut query = Query::new("A", "1", "a");
        query.set("Tag.1", "a b+c/ä~");
        query.maybe("None", None::<i32>);
        query.maybe("Some", Some(1));
        assert_eq!(query.encoded(), "Action=A&Version=1&Tag.1=a%20b%2Bc%2F%C3%A4~&Some=1");
    }

    #[rstest]
    #[case::ec2("<Response><Errors><Error><Code>A</Code><Message>m &amp; n</Message></Error></Errors></Response>", Some(("A", "m & n")))]
    #[case::sts(r#"<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>B</Code></Error></ErrorResponse>"#, Some(("B", "")))]
    #[case::no_code("<Error></Error>", None)]
    #[case::of_a_proxy("<html></html>", None)]
    #[case("no XML", None)]
    fn errors_of_all_services_are_read(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
        assert_eq!(error_in(text), expected.map(|(code, message)| (code.to_owned(), message.to_owned())));
    }
}
