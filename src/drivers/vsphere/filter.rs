//! Filters of the property collector: which objects, and which of their properties.

use super::soap::{Ref, Xml};

/// Selects objects and their properties.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// By the type of the object.
    properties: Vec<(String, Vec<&'static str>)>,
    objects: Vec<Ref>,
    /// Only objects to which the steps lead count.
    is_root: bool,
    steps: Vec<Step>,
}

/// A step from an object of a type to those in one of its properties, and on with other steps.
#[derive(Clone, Debug)]
struct Step {
    name: &'static str,
    kind: String,
    property: &'static str,
    next: Vec<&'static str>,
}

impl Step {
    fn new(name: &'static str, kind: &str, property: &'static str, next: &[&'static str]) -> Self {
        Self { name, kind: kind.to_owned(), property, next: next.to_vec() }
    }

    fn xml(&self) -> Xml {
        let xml = Xml::new().text("name", self.name).text("type", &self.kind).text("path", self.property);
        let next = |xml: Xml, name: &&str| xml.typed("selectSet", "SelectionSpec", &Xml::new().text("name", name));
        xml.value("skip", false).each(&self.next, next)
    }
}

impl Filter {
    /// One object.
    pub(crate) fn for_object(object: Ref, properties: &[&'static str]) -> Self {
        let kind = object.kind.clone();
        Self::of_all(vec![object], &kind, properties)
    }

    /// Several objects of a type.
    pub(crate) fn of_all(objects: Vec<Ref>, kind: &str, properties: &[&'static str]) -> Self {
        let properties = vec![(kind.to_owned(), properties.to_vec())];
        Self { properties, objects, is_root: false, steps: Vec::new() }
    }

    /// The objects of a type in a folder, but not in its folders.
    pub(crate) fn in_folder(folder: Ref, kind: &str, properties: &[&'static str]) -> Self {
        let steps = vec![Step::new("children", "Folder", "childEntity", &[])];
        Self { is_root: true, steps, ..Self::of_all(vec![folder], kind, properties) }
    }

    /// All objects below a folder, whatever their types.
    pub(crate) fn below(folder: Ref, properties: &[&'static str]) -> Self {
        let steps = vec![
            Step::new("folders", "Folder", "childEntity", &["folders", "hosts", "pools"]),
            Step::new("hosts", "ComputeResource", "host", &[]),
            Step::new("pools", "ComputeResource", "resourcePool", &["nested"]),
            Step::new("nested", "ResourcePool", "resourcePool", &["nested"]),
        ];
        Self { is_root: true, steps, ..Self::of_all(vec![folder], "ManagedEntity", properties) }
    }

    /// An object, and the object to which one of its properties leads, each with properties of its type.
    pub(crate) fn with_next(
        object: Ref,
        properties: &[&'static str],
        step: &'static str,
        (kind, next): (&str, &[&'static str]),
    ) -> Self {
        let steps = vec![Step::new("next", &object.kind, step, &[])];
        let mut filter = Self { steps, ..Self::for_object(object, properties) };
        filter.properties.push((kind.to_owned(), next.to_vec()));
        filter
    }

    pub(crate) fn xml(&self) -> Xml {
        let properties = Xml::new().each(&self.properties, |xml, (kind, paths)| {
            let set = Xml::new().text("type", kind).each(paths, |xml, path| xml.text("pathSet", path));
            xml.tag("propSet", &set)
        });
        properties.each(&self.objects, |xml, object| {
            let set = Xml::new().reference("obj", object).value("skip", self.is_root);
            xml.tag(
                "objectSet",
                &set.each(&self.steps, |xml, step| xml.typed("selectSet", "TraversalSpec", &step.xml())),
            )
        })
    }
}
