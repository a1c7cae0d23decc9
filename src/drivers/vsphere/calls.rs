//! The methods of vCenter: nothing is decided here.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use mcm_driver::{Code, DriverError, SecretData, cloud::CloudFailure};
use roxmltree::Node;

use super::{
    device::detachments,
    errors::{code_of, failure_of_task},
    filter::Filter,
    soap::{Method, Ref, Soap, Xml, child, children, echo, kind_of, number_of, reference_of, text_of},
};

/// Bounds the time of a list.
const MOST_PAGES: usize = 1_000;
/// More objects than any folder has. Bounds the memory of a list.
const MOST_OBJECTS: usize = 50_000;
/// Objects in a page, unless vCenter sends fewer.
const PAGE: usize = 500;

/// An object with some of its properties.
pub(crate) struct Found<'a, 'd>(Node<'a, 'd>);

impl<'a, 'd> Found<'a, 'd> {
    pub(crate) fn reference(&self) -> Option<Ref> {
        child(self.0, "obj").and_then(reference_of)
    }

    /// The value of a property, if it is set.
    pub(crate) fn value(&self, path: &str) -> Option<Node<'a, 'd>> {
        let is_it = |set: &Node<'_, '_>| text_of(*set, "name").as_deref() == Some(path);
        children(self.0, "propSet").find(is_it).and_then(|set| child(set, "val"))
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.value(path).map(|value| value.text().unwrap_or_default().to_owned())
    }

    /// A property that may not be read. An object without it must not pass for one that lacks it.
    fn denied(&self) -> Option<String> {
        let mut missing = children(self.0, "missingSet");
        let is_denied = |set: &Node<'_, '_>| {
            let fault = child(*set, "fault").and_then(|fault| child(fault, "fault")).and_then(kind_of);
            fault.is_some_and(|fault| code_of(&fault) == Code::PermissionDenied)
        };
        missing.find(is_denied).map(|set| text_of(set, "path").unwrap_or_default())
    }
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskState {
    Running,
    /// With the object that it made, if it made one.
    Done(Option<Ref>),
    Failed(CloudFailure),
}

/// Where vSphere recommends to put a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub host: Option<Ref>,
    pub datastore: Option<Ref>,
}

/// vCenter with the credentials of a Secret.
#[derive(Clone)]
pub(crate) struct Api {
    pub soap: Arc<Soap>,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// The objects of a filter, page by page: `read` reads one, and may leave it out.
    ///
    /// # Errors
    /// The failure of a page, so that a part of a list never passes for all of it; [`Code::NotFound`] if an object that the
    /// filter names is absent.
    pub(crate) async fn retrieve<T>(
        &self,
        filters: &[Filter],
        mut read: impl FnMut(Found<'_, '_>) -> Option<Option<T>>,
    ) -> Result<Vec<T>, CloudFailure> {
        const FIRST: Method = Method::read("RetrievePropertiesEx", "retrieve_properties");
        const NEXT: Method = Method::read("ContinueRetrievePropertiesEx", "retrieve_properties");
        let collector = self.soap.managers().await?.properties;
        let sets = Xml::new().each(filters, |xml, filter| xml.tag("specSet", &filter.xml()));
        let first = sets.tag("options", &Xml::new().value("maxObjects", PAGE));
        let mut all = Vec::new();
        let mut page = |node: Node<'_, '_>| {
            // Without objects there is no value.
            let Some(result) = child(node, "returnval") else { return Some(Ok((Vec::new(), None))) };
            let objects = children(result, "objects").map(Found);
            let mut items = Vec::new();
            for object in objects {
                if let Some(path) = object.denied() {
                    return Some(Err(denied(&path)));
                }
                items.extend(read(object)?);
            }
            Some(Ok((items, text_of(result, "token"))))
        };
        let (mut items, mut token) = self.soap.call(FIRST, &collector, &first, &mut page).await??;
        all.append(&mut items);
        for _ in 0..MOST_PAGES {
            let Some(next) = token else { return Ok(all) };
            let next = Xml::new().text("token", &next);
            (items, token) = self.soap.call(NEXT, &collector, &next, &mut page).await??;
            all.append(&mut items);
            if all.len() > MOST_OBJECTS {
                break;
            }
        }
        Err(CloudFailure::TooLarge(MOST_OBJECTS))
    }

    /// The object at a path from the root of the inventory.
    pub(crate) async fn at(&self, path: &str) -> Result<Option<Ref>, CloudFailure> {
        const METHOD: Method = Method::read("FindByInventoryPath", "find_by_inventory_path");
        let search = self.soap.managers().await?.search;
        self.soap.call(METHOD, &search, &Xml::new().text("inventoryPath", path), |node| Some(found(node))).await
    }

    /// The object of a name in a folder.
    pub(crate) async fn child(&self, folder: &Ref, name: &str) -> Result<Option<Ref>, CloudFailure> {
        const METHOD: Method = Method::read("FindChild", "find_child");
        let search = self.soap.managers().await?.search;
        let arguments = Xml::new().reference("entity", folder).text("name", name);
        self.soap.call(METHOD, &search, &arguments, |node| Some(found(node))).await
    }

    /// The VMs with a BIOS UUID: copies of files may have the same.
    pub(crate) async fn with_uuid(&self, uuid: &str) -> Result<Vec<Ref>, CloudFailure> {
        const METHOD: Method = Method::read("FindAllByUuid", "find_by_uuid");
        let search = self.soap.managers().await?.search;
        let arguments = Xml::new().text("uuid", uuid).value("vmSearch", true).value("instanceUuid", false);
        let read = |node: Node<'_, '_>| children(node, "returnval").map(reference_of).collect::<Option<Vec<_>>>();
        self.soap.call(METHOD, &search, &arguments, read).await
    }

    /// Changes that detach the disks of others from a VM.
    pub(crate) async fn detachments(&self, vm: &Ref, name: &str) -> Result<Vec<Xml>, CloudFailure> {
        const PATH: &str = "config.files.vmPathName";
        const DEVICES: &str = "config.hardware.device";
        let read = |found: Found<'_, '_>| {
            let path = found.text(PATH).filter(|path| !path.is_empty())?;
            Some(Some(detachments(found.value(DEVICES)?, &path, name)))
        };
        let found = self.retrieve(&[Filter::for_object(vm.clone(), &[PATH, DEVICES])], read).await?;
        found.into_iter().next().ok_or(CloudFailure::Unreadable(200))
    }

    /// Begins a task; its ID follows it.
    pub(crate) async fn begin(&self, method: Method, this: &Ref, arguments: &Xml) -> Result<Ref, CloudFailure> {
        self.soap.call(method, this, arguments, found).await
    }

    pub(crate) async fn task(&self, task: &Ref) -> Result<TaskState, CloudFailure> {
        const STATE: &str = "info.state";
        const RESULT: &str = "info.result";
        const ERROR: &str = "info.error";
        let filter = Filter::for_object(task.clone(), &[STATE, RESULT, ERROR]);
        let read = |found: Found<'_, '_>| {
            let state = match found.text(STATE)?.as_str() {
                "queued" | "running" => TaskState::Running,
                "success" => TaskState::Done(found.value(RESULT).and_then(reference_of)),
                "error" => TaskState::Failed(failure_of_task(found.value(ERROR)?)?),
                _ => return None,
            };
            Some(Some(state))
        };
        self.retrieve(&[filter], read).await?.pop().ok_or(CloudFailure::Unreadable(200))
    }

    /// The clones of a VM that vCenter makes, or will make, and that were ordered at a time or later.
    pub(crate) async fn clones_of(&self, template: &Ref, since: Timestamp) -> Result<Vec<Ref>, CloudFailure> {
        const TASKS: &str = "recentTask";
        const STATE: &str = "info.state";
        const WHAT: &str = "info.descriptionId";
        const QUEUED: &str = "info.queueTime";
        let read = |found: Found<'_, '_>| {
            let all = found.value(TASKS).into_iter().flat_map(|all| children(all, "ManagedObjectReference"));
            Some(Some(all.map(reference_of).collect::<Option<Vec<_>>>()?))
        };
        let tasks = self.retrieve(&[Filter::for_object(template.clone(), &[TASKS])], read).await?;
        let tasks: Vec<Ref> = tasks.into_iter().flatten().collect();
        if tasks.is_empty() {
            return Ok(tasks);
        }
        let read = |found: Found<'_, '_>| {
            let is_open = ["queued", "running"].contains(&found.text(STATE)?.as_str());
            let is_clone = found.text(WHAT)?.starts_with("VirtualMachine.clone");
            // A time that cannot be read may be any.
            let is_later = found.text(QUEUED)?.parse().map_or(true, |queued: Timestamp| queued >= since);
            Some((is_open && is_clone && is_later).then(|| found.reference()).flatten())
        };
        self.retrieve(&[Filter::of_all(tasks, "Task", &[STATE, WHAT, QUEUED])], read).await
    }

    /// The time at which a VM was made, if vCenter shows it.
    pub(crate) async fn created(&self, vm: &Ref) -> Result<Option<Timestamp>, CloudFailure> {
        const CREATED: &str = "config.createDate";
        let read = |found: Found<'_, '_>| Some(found.text(CREATED).and_then(|text| text.parse().ok()));
        let found = self.retrieve(&[Filter::for_object(vm.clone(), &[CREATED])], read).await?;
        Ok(found.into_iter().next())
    }

    /// Where a cluster recommends to put a clone; `None` if it has no room.
    pub(crate) async fn place(&self, cluster: &Ref, spec: &Xml) -> Result<Option<Placement>, CloudFailure> {
        const METHOD: Method = Method::read("PlaceVm", "place_vm");
        let read = |node: Node<'_, '_>| {
            Some(recommended(node, |action| {
                let spec = child(action, "relocateSpec")?;
                let of = |name| child(spec, name).and_then(reference_of);
                Some(Placement { host: of("host"), datastore: of("datastore") })
            }))
        };
        self.soap.call(METHOD, cluster, &Xml::new().tag("placementSpec", spec), read).await
    }

    /// The datastore of a storage pod that vSphere recommends for a clone; `None` if there is no room.
    pub(crate) async fn recommend_datastore(&self, spec: &Xml) -> Result<Option<Ref>, CloudFailure> {
        const METHOD: Method = Method::read("RecommendDatastores", "recommend_datastores");
        let manager = self.soap.managers().await?.storage.ok_or_else(no_vcenter)?;
        let read =
            |node: Node<'_, '_>| Some(recommended(node, |action| child(action, "destination").and_then(reference_of)));
        self.soap.call(METHOD, &manager, &Xml::new().tag("storageSpec", spec), read).await
    }

    /// A customization specification, as it is sent with a clone.
    pub(crate) async fn customization(&self, name: &str) -> Result<Xml, CloudFailure> {
        const METHOD: Method = Method::read("GetCustomizationSpec", "get_customization_spec");
        let manager = self.soap.managers().await?.customization.ok_or_else(no_vcenter)?;
        let read = |node: Node<'_, '_>| {
            child(node, "returnval").and_then(|item| child(item, "spec")).map(|spec| echo(spec, &[], &[]))
        };
        self.soap.call(METHOD, &manager, &Xml::new().text("name", name), read).await
    }

    /// Defines a custom field of VMs; returns its key. It is for the whole vCenter.
    pub(crate) async fn add_field(&self, name: &str) -> Result<i64, CloudFailure> {
        const METHOD: Method = Method::write("AddCustomFieldDef", "add_custom_field");
        let manager = self.soap.managers().await?.fields.ok_or_else(no_vcenter)?;
        let arguments = Xml::new().text("name", name).text("moType", "VirtualMachine");
        let read = |node: Node<'_, '_>| child(node, "returnval").and_then(|field| number_of(field, "key"));
        self.soap.call(METHOD, &manager, &arguments, read).await
    }

    /// Sets a custom field of a VM.
    pub(crate) async fn set_field(&self, vm: &Ref, key: i64, value: &str) -> Result<(), CloudFailure> {
        const METHOD: Method = Method::idempotent("SetField", "set_custom_field");
        let manager = self.soap.managers().await?.fields.ok_or_else(no_vcenter)?;
        let arguments = Xml::new().reference("entity", vm).value("key", key).text("value", value);
        self.soap.call(METHOD, &manager, &arguments, |_| Some(())).await
    }

    /// The names of the custom fields of VMs, by their keys.
    pub(crate) async fn fields(&self) -> Result<BTreeMap<i64, String>, CloudFailure> {
        let filter = self.filter_of_fields().await?;
        Ok(self.retrieve(&[filter], |found| fields_of(&found).map(Some)).await?.pop().unwrap_or_default())
    }

    /// For look-ups that read custom fields with the same request.
    pub(crate) async fn filter_of_fields(&self) -> Result<Filter, CloudFailure> {
        let manager = self.soap.managers().await?.fields.ok_or_else(no_vcenter)?;
        Ok(Filter::for_object(manager, &[FIELDS]))
    }

    pub(crate) fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}

const FIELDS: &str = "field";

/// The custom fields of VMs in an object that a look-up found, if it is their manager.
pub(crate) fn fields_of(found: &Found<'_, '_>) -> Option<BTreeMap<i64, String>> {
    let Some(value) = found.value(FIELDS) else { return Some(BTreeMap::new()) };
    let is_of_vms = |field: &Node<'_, '_>| {
        text_of(*field, "managedObjectType")
            .is_none_or(|kind| ["", "VirtualMachine", "ManagedEntity"].contains(&kind.as_str()))
    };
    let all = children(value, "CustomFieldDef").filter(is_of_vms);
    all.map(|field| Some((number_of(field, "key")?, text_of(field, "name")?))).collect()
}

fn found(node: Node<'_, '_>) -> Option<Ref> {
    child(node, "returnval").and_then(reference_of)
}

/// Reads the first recommendation.
fn recommended<T>(node: Node<'_, '_>, read: impl Fn(Node<'_, '_>) -> Option<T>) -> Option<T> {
    let result = child(node, "returnval")?;
    children(result, "recommendations").next().and_then(|first| children(first, "action").find_map(read))
}

fn denied(path: &str) -> CloudFailure {
    let message = format!("property {path} cannot be read: the user needs the privilege System.Read");
    CloudFailure::Named { code: Code::PermissionDenied, name: "NoPermission".to_owned(), message }
}

fn no_vcenter() -> CloudFailure {
    let message = "the host is an ESXi host without vCenter, which cannot clone VMs".to_owned();
    CloudFailure::Named { code: Code::InvalidArgument, name: "NotSupported".to_owned(), message }
}
