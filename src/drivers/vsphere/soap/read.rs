//! Reads responses. An answer has limits of its size and of its elements, which take much more memory than their text.

use mcm_driver::cloud::CloudFailure;
use roxmltree::{Document, Node, ParsingOptions};

use super::{ENVELOPE, INSTANCE, Ref};

/// Most nodes of an answer. A page of 1000 VMs has some 300,000.
const MOST_NODES: u32 = 2_000_000;

/// Reads the response in an envelope.
///
/// # Errors
/// [`Failure::Unreadable`]: it is no envelope, or `read` returns nothing.
pub(super) fn response<T>(text: &str, read: impl FnOnce(Node<'_, '_>) -> Option<T>) -> Result<T, CloudFailure> {
    let unreadable = || CloudFailure::Unreadable(200);
    let document = parse(text).ok_or_else(unreadable)?;
    body(&document).filter(|node| kind_name(*node) != "Fault").and_then(read).ok_or_else(unreadable)
}

/// The name and the text of the fault in an envelope, if it is one.
pub(crate) fn fault(text: &str) -> Option<(String, String)> {
    let document = parse(text)?;
    let fault = body(&document).filter(|node| node.has_tag_name((ENVELOPE, "Fault")))?;
    let detail = child(fault, "detail").and_then(|detail| detail.first_element_child());
    // Faults of the protocol have no detail.
    let name = detail.map_or_else(|| "SoapFault".to_owned(), fault_name);
    Some((name, text_of(fault, "faultstring").unwrap_or_default()))
}

/// The name of the type of a fault.
fn fault_name(node: Node<'_, '_>) -> String {
    kind_of(node).unwrap_or_else(|| kind_name(node).trim_end_matches("Fault").to_owned())
}

fn parse(text: &str) -> Option<Document<'_>> {
    Document::parse_with_options(text, ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() }).ok()
}

fn body<'a, 'd>(document: &'a Document<'d>) -> Option<Node<'a, 'd>> {
    let envelope = Some(document.root_element()).filter(|node| node.has_tag_name((ENVELOPE, "Envelope")))?;
    envelope.children().find(|node| node.has_tag_name((ENVELOPE, "Body")))?.first_element_child()
}

fn kind_name<'a>(node: Node<'a, '_>) -> &'a str {
    node.tag_name().name()
}

/// The first element of a name in another.
pub(crate) fn child<'a, 'd>(node: Node<'a, 'd>, name: &str) -> Option<Node<'a, 'd>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

/// All elements of a name in another.
pub(crate) fn children<'a, 'd>(node: Node<'a, 'd>, name: &'static str) -> impl Iterator<Item = Node<'a, 'd>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

pub(crate) fn text_of(node: Node<'_, '_>, name: &str) -> Option<String> {
    child(node, name).map(|child| child.text().unwrap_or_default().to_owned())
}

pub(crate) fn number_of(node: Node<'_, '_>, name: &str) -> Option<i64> {
    child(node, name)?.text()?.parse().ok()
}

/// True if the element is there and true.
pub(crate) fn flag(node: Node<'_, '_>, name: &str) -> bool {
    child(node, name).and_then(|child| child.text()).is_some_and(|text| ["true", "1"].contains(&text))
}

/// The managed object that an element refers to.
pub(crate) fn reference_of(node: Node<'_, '_>) -> Option<Ref> {
    let (kind, id) = (object_kind(node)?, node.text()?);
    Some(Ref::new(kind, id))
}

/// The type of the object that an element refers to. It is not the type of the element, whose attribute is in a namespace.
pub(super) fn object_kind<'a>(node: Node<'a, '_>) -> Option<&'a str> {
    let mut all = node.attributes().filter(|attribute| attribute.namespace().is_none());
    all.find(|attribute| attribute.name() == "type").map(|attribute| attribute.value())
}

/// The name of the type of a value, if it is not determined by the name of its element.
pub(crate) fn kind_of(node: Node<'_, '_>) -> Option<String> {
    let kind = node.attribute((INSTANCE, "type"))?;
    Some(kind.rsplit(':').next().unwrap_or(kind).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn envelope(body: &str) -> String {
        format!(
            r#"<?xml version="1.0"?><e:Envelope xmlns:e="{ENVELOPE}" xmlns:xsi="{INSTANCE}"><e:Body>{body}</e:Body></e:Envelope>"#
        )
    }

    #[rstest]
    #[case::by_its_type(
        r#"<e:Fault><faultcode>ServerFaultCode</faultcode><faultstring>gone</faultstring><detail><ManagedObjectNotFoundFault xmlns="urn:vim25" xsi:type="ManagedObjectNotFound"><obj type="Task">task-1</obj></ManagedObjectNotFoundFault></detail></e:Fault>"#,
        "ManagedObjectNotFound",
        "gone"
    )]
    #[case::by_its_element(
        "<e:Fault><faultstring/><detail><InvalidLoginFault/></detail></e:Fault>",
        "InvalidLogin",
        ""
    )]
    #[case::of_the_protocol(
        "<e:Fault><faultcode>Client</faultcode><faultstring>bad</faultstring></e:Fault>",
        "SoapFault",
        "bad"
    )]
    fn a_fault_has_a_name_and_a_text(#[case] body: &str, #[case] name: &str, #[case] text: &str) {
        let body = envelope(body);
        assert_eq!(fault(&body), Some((name.to_owned(), text.to_owned())));
        assert_eq!(response(&body, |_| Some(())), Err(CloudFailure::Unreadable(200)));
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("not XML")]
    #[case("")]
    #[case("<!DOCTYPE x [<!ENTITY a \"b\">]><x>&a;</x>")]
    fn a_text_that_is_no_envelope_is_neither_a_fault_nor_a_response(#[case] text: &str) {
        assert_eq!(fault(text), None);
        assert_eq!(response(text, |_| Some(())), Err(CloudFailure::Unreadable(200)));
    }

    #[test]
    fn the_parts_of_a_response_are_read() {
        let body = envelope(
            r#"<R xmlns="urn:vim25"><a xsi:type="ManagedObjectReference" type="Folder">group-1</a><n>7</n><b>true</b><v xsi:type="xsd:string">x</v><v/></R>"#,
        );
        response(&body, |node| {
            assert_eq!(child(node, "a").and_then(reference_of), Some(Ref::new("Folder", "group-1")));
            assert_eq!((number_of(node, "n"), flag(node, "b"), flag(node, "c")), (Some(7), true, false));
            assert_eq!(child(node, "v").and_then(kind_of).as_deref(), Some("string"));
            assert_eq!((text_of(node, "v").as_deref(), children(node, "v").count()), (Some("x"), 2));
            assert_eq!((reference_of(child(node, "n")?), text_of(node, "none")), (None, None));
            Some(())
        })
        .unwrap();
        assert_eq!(response(&body, |_| None::<()>), Err(CloudFailure::Unreadable(200)));
    }
}
