//! A fake of the Resource Manager of Azure, its login host and the Resource Graph: it keeps VMs, network interfaces and disks, and
//! refuses every request that does not fit the definitions of Microsoft's own clients.
//!
//! States, long operations, cascades and names of errors follow Microsoft's documentation.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kit::{
    server::{FakeCloud, Reply, Request},
    swagger::Definitions,
};

pub const TENANT: &str = "11111111-0000-4000-8000-000000000001";
pub const SUBSCRIPTION: &str = "22222222-0000-4000-8000-000000000002";
pub const CLIENT: &str = "33333333-0000-4000-8000-000000000003";
pub const CLIENT_SECRET: &str = "client-top-secret";
/// Text of a token file that the application trusts.
pub const ASSERTION: &str = "assertion-top-secret";
pub const LOCATION: &str = "westeurope";
pub const GROUP: &str = "shoot--a--b";
/// Another resource group of the subscription.
const OTHER_GROUP: &str = "shoot--a--c";
pub const VNET: &str = "vnet";
pub const SUBNET: &str = "nodes";
pub const SIZE: &str = "Standard_D2s_v5";
/// A size that only some tests use.
pub const LARGE: &str = "Standard_D4s_v5";
pub const IMAGE: &str = "/subscriptions/x/resourceGroups/images/providers/Microsoft.Compute/images/os";
/// An image of the marketplace with a plan, and its disk.
pub const URN: &str = "sap:gardenlinux:greatest:1443.3.0";
pub const SCOPE: &str = "https://management.core.windows.net//.default";

/// Versions of the API by resource provider or type.
const VERSIONS: [(&str, &str); 9] = [
    ("virtualMachines", "2023-07-01"),
    ("disks", "2023-04-02"),
    ("networkInterfaces", "2023-05-01"),
    ("virtualNetworks", "2023-05-01"),
    ("locations", "2023-07-01"),
    ("skus", "2021-07-01"),
    ("Microsoft.MarketplaceOrdering", "2021-01-01"),
    ("Microsoft.ResourceGraph", "2021-06-01-preview"),
    ("", "2021-04-01"),
];

/// A kind of resource and the name of one, in lower case.
type Key = (&'static str, String);

const VM: &str = "virtualMachines";
const NIC: &str = "networkInterfaces";
const DISK: &str = "disks";

/// A resource, and the change that Azure makes to it.
#[derive(Clone, Debug)]
pub struct Thing {
    pub value: Value,
    /// So many reads do not show the end of the change.
    left: usize,
    is_going: bool,
    /// Why its creation fails.
    fails: Option<(String, String)>,
    operation: u64,
}

/// The Resource Manager with its resources.
pub struct Arm {
    definitions: Definitions,
    things: BTreeMap<Key, Thing>,
    /// The ends of operations: a resource, and the error.
    operations: BTreeMap<u64, (Key, Option<Value>, bool)>,
    tokens: u64,
    /// Tokens up to this one are not valid any more.
    expired: u64,
    /// VMs that were ever created.
    pub created: u64,
    /// Requests that changed an existing VM, except its tags.
    pub changed: u64,
    /// Requests that do not fit the definitions.
    pub violations: Vec<String>,
    /// Reads until a change of a VM is done.
    pub steps: usize,
    /// Reads until a change of another resource is done.
    pub steps_of_parts: usize,
    /// The error of each request that creates a VM.
    pub refusal: Option<(u16, &'static str, &'static str)>,
    /// VMs are accepted, and fail later for this reason.
    pub failure: Option<(&'static str, &'static str)>,
    /// VMs of the subscription.
    pub quota: Option<usize>,
    /// A resource provider that is not registered, and the reads until it is.
    pub unregistered: Option<(&'static str, usize)>,
    /// Rows of a page.
    pub page: usize,
    /// The terms of the plan are accepted; `None` if there are no terms.
    pub terms: Option<bool>,
    /// Resources that are not there: group, subnet, image, size.
    pub absent: Vec<&'static str>,
    /// Why the subscription cannot have the size.
    pub restriction: Option<&'static str>,
    /// Clients of other versions are served.
    pub takes_any_version: bool,
    /// Reports on operations are not kept.
    pub forgets_operations: bool,
    headers: Vec<(&'static str, String)>,
}

impl Arm {
    pub fn new() -> Self {
        Self {
            definitions: Definitions::of(include_str!("arm.json")),
            things: BTreeMap::new(),
            operations: BTreeMap::new(),
            tokens: 0,
            expired: 0,
            created: 0,
            changed: 0,
            violations: Vec::new(),
            steps: 1,
            steps_of_parts: 0,
            refusal: None,
            failure: None,
            quota: None,
            unregistered: None,
            page: 100,
            terms: Some(false),
            absent: Vec::new(),
            restriction: None,
            takes_any_version: false,
            forgets_operations: false,
            headers: Vec::new(),
        }
    }

    /// All VMs but those in deletion.
    pub fn vms(&self) -> Vec<&Value> {
        self.of_kind(VM)
    }

    pub fn nics(&self) -> Vec<&Value> {
        self.of_kind(NIC)
    }

    pub fn disks(&self) -> Vec<&Value> {
        self.of_kind(DISK)
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.things.iter().filter(|((of, _), one)| *of == kind && !one.is_going).map(|(_, one)| &one.value).collect()
    }

    /// A VM, to change it behind the back of mcm.
    pub fn vm_mut(&mut self, name: &str) -> &mut Value {
        &mut self.things.get_mut(&(VM, name.to_owned())).unwrap().value
    }

    /// The network interface of a VM, to change it behind the back of mcm.
    pub fn nic_mut(&mut self, vm: &str) -> &mut Value {
        &mut self.things.get_mut(&(NIC, format!("{vm}-nic"))).unwrap().value
    }

    /// Creates a VM with its parts behind the back of mcm.
    pub fn put(&mut self, name: &str, tags: &Value) {
        self.put_nic(name, tags);
        let nic = self.things[&(NIC, format!("{name}-nic"))].value["id"].clone();
        let cascade = json!({"deleteOption": "Delete"});
        let body = json!({
            "location": LOCATION, "tags": tags,
            "properties": {
                "hardwareProfile": {"vmSize": SIZE},
                "networkProfile": {"networkInterfaces": [{"id": nic, "properties": cascade}]},
                "storageProfile": {"osDisk": {"name": format!("{name}-os-disk"), "createOption": "FromImage", "deleteOption": "Delete"}},
            },
        });
        self.add((VM, name.to_owned()), body, 0);
    }

    /// Creates a network interface that no VM has.
    pub fn put_nic(&mut self, vm: &str, tags: &Value) {
        let body = json!({"location": LOCATION, "tags": tags, "properties": {}});
        self.add((NIC, format!("{vm}-nic")), body, 0);
    }

    /// Creates a disk that no VM has.
    pub fn put_disk(&mut self, name: &str, tags: &Value) {
        let body =
            json!({"location": LOCATION, "tags": tags, "properties": {"creationData": {"createOption": "Empty"}}});
        self.add((DISK, name.to_owned()), body, 0);
    }

    /// The parts of a VM show this holder, whether it exists or not.
    pub fn hold(&mut self, vm: &str, holder: &str) {
        self.nic_mut(vm)["properties"]["virtualMachine"] = json!({"id": holder});
        self.things.get_mut(&(DISK, format!("{vm}-os-disk"))).unwrap().value["managedBy"] = json!(holder);
    }

    /// All VMs and those in deletion.
    pub fn shown_vms(&self) -> usize {
        self.things.keys().filter(|(kind, _)| *kind == VM).count()
    }

    /// Creates a VM in another resource group of the subscription behind the back of mcm; returns its ID.
    pub fn put_in_other_group(&mut self, name: &str, tags: &Value) -> String {
        let id = format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/{OTHER_GROUP}/providers/Microsoft.Compute/{VM}/{name}"
        );
        let value = json!({
            "id": id, "name": name, "type": format!("Microsoft.Compute/{VM}"), "location": LOCATION, "tags": tags,
            "properties": {"provisioningState": "Succeeded"},
        });
        let thing = Thing { value, left: 0, is_going: false, fails: None, operation: 0 };
        // Paths lead to names without a slash.
        self.things.insert((VM, format!("{OTHER_GROUP}/{name}")), thing);
        id
    }

    /// Deletes a VM with its parts behind the back of mcm.
    pub fn take(&mut self, name: &str) {
        let key = (VM, name.to_owned());
        if self.things.contains_key(&key) {
            self.end(&key);
        }
    }

    /// An error as Azure sends it.
    pub fn error(status: u16, code: &str, message: &str) -> Reply {
        Reply { status, body: json!({"error": {"code": code, "message": message}}).to_string() }
    }

    fn not_found(kind: &str, name: &str) -> Reply {
        Self::error(
            404,
            "ResourceNotFound",
            &format!("The Resource '{kind}/{name}' under resource group was not found."),
        )
    }

    /// Adds a resource, which is ready after some reads; returns the number of the operation.
    fn add(&mut self, key: Key, mut value: Value, steps: usize) -> u64 {
        let (kind, name) = &key;
        let provider = if *kind == NIC { "Microsoft.Network" } else { "Microsoft.Compute" };
        value["name"] = json!(name);
        value["type"] = json!(format!("{provider}/{kind}"));
        value["id"] =
            json!(format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{provider}/{kind}/{name}"));
        value["properties"]["provisioningState"] = json!(if *kind == NIC { "Updating" } else { "Creating" });
        if *kind == VM {
            self.created += 1;
            value["properties"]["vmId"] = json!(format!("{:08}-0000-4000-8000-000000000000", self.created));
            self.attach(&mut value);
        }
        // A VM with this name finds no capacity.
        let starves = name == "starves";
        let failure =
            self.failure.or(starves.then_some(("ZonalAllocationFailed", "There is no capacity in the zone.")));
        let fails = failure.filter(|_| *kind == VM).map(|(code, message)| (code.to_owned(), message.to_owned()));
        let operation = self.operations.len() as u64 + 1;
        self.operations.insert(operation, (key.clone(), None, false));
        self.things.insert(key.clone(), Thing { value, left: steps, is_going: false, fails, operation });
        if steps == 0 {
            self.complete(&key);
        }
        operation
    }

    /// A VM has its network interface and its disks at once.
    fn attach(&mut self, vm: &mut Value) {
        let id = vm["id"].clone();
        for nic in vm["properties"]["networkProfile"]["networkInterfaces"].as_array().into_iter().flatten() {
            if let Some(nic) = self.things.get_mut(&(NIC, last(&nic["id"]))) {
                nic.value["properties"]["virtualMachine"] = json!({"id": id});
            }
        }
        let storage = vm["properties"]["storageProfile"].clone();
        for disk in [&storage["osDisk"]].into_iter().chain(storage["dataDisks"].as_array().into_iter().flatten()) {
            let key = (DISK, disk["name"].as_str().unwrap().to_owned());
            if !self.things.contains_key(&key) {
                let body = json!({
                    "location": vm["location"], "tags": vm["tags"], "zones": vm["zones"],
                    "properties": {"creationData": {"createOption": disk["createOption"]}},
                });
                self.add(key.clone(), without_nulls(body), 0);
            }
            self.things.get_mut(&key).unwrap().value["managedBy"] = id.clone();
        }
    }

    /// One more look at a resource.
    fn look(&mut self, key: &Key) {
        let Some(thing) = self.things.get_mut(key) else { return };
        if thing.left > 0 {
            thing.left -= 1;
            if thing.left == 0 {
                self.complete(key);
            }
        }
    }

    /// The change of a resource is done.
    fn complete(&mut self, key: &Key) {
        let Some(thing) = self.things.get_mut(key) else { return };
        let (operation, is_going) = (thing.operation, thing.is_going);
        let mut error = None;
        if is_going {
            self.end(key);
        } else if let Some((code, message)) = thing.fails.take() {
            thing.value["properties"]["provisioningState"] = json!("Failed");
            let status =
                json!({"code": format!("ProvisioningState/failed/{code}"), "level": "Error", "message": message});
            thing.value["properties"]["instanceView"] = json!({"statuses": [status]});
            error = Some(json!({"code": code, "message": message}));
        } else {
            thing.value["properties"]["provisioningState"] = json!("Succeeded");
            if key.0 == VM {
                let status = |code: &str| json!({"code": code, "level": "Info", "displayStatus": code});
                thing.value["properties"]["instanceView"] =
                    json!({"statuses": [status("ProvisioningState/succeeded"), status("PowerState/running")]});
            }
        }
        self.operations.insert(operation, (key.clone(), error, true));
    }

    /// A resource is gone. Parts of a VM go with it, or are free.
    fn end(&mut self, key: &Key) {
        let Some(thing) = self.things.remove(key) else { return };
        if key.0 != VM {
            return;
        }
        let storage = &thing.value["properties"]["storageProfile"];
        let nics = thing.value["properties"]["networkProfile"]["networkInterfaces"].as_array().into_iter().flatten();
        let nics = nics.map(|nic| ((NIC, last(&nic["id"])), &nic["properties"]["deleteOption"]));
        let disks = [&storage["osDisk"]].into_iter().chain(storage["dataDisks"].as_array().into_iter().flatten());
        let disks = disks.map(|disk| ((DISK, disk["name"].as_str().unwrap().to_owned()), &disk["deleteOption"]));
        for (part, option) in nics.chain(disks) {
            if option == "Delete" {
                self.things.remove(&part);
            } else if let Some(part) = self.things.get_mut(&part) {
                part.value["managedBy"] = Value::Null;
                part.value["properties"].as_object_mut().unwrap().remove("virtualMachine");
            }
        }
    }

    fn shown(&mut self, key: &Key, has_view: bool) -> Value {
        let mut value = self.things[key].value.clone();
        if !has_view {
            value["properties"].as_object_mut().unwrap().remove("instanceView");
        }
        if key.0 == VM {
            // Secrets are not shown.
            value["properties"]["osProfile"].as_object_mut().map(|profile| profile.remove("customData"));
        }
        let value = without_nulls(value);
        let definition = match key.0 {
            VM => "VirtualMachine",
            NIC => "NetworkInterface",
            _ => "Disk",
        };
        self.definitions.check(definition, &value).unwrap();
        value
    }

    fn get(&mut self, key: &Key, has_view: bool) -> Reply {
        self.look(key);
        if !self.things.contains_key(key) {
            return Self::not_found(key.0, &key.1);
        }
        Reply { status: 200, body: self.shown(key, has_view).to_string() }
    }

    fn announce(&mut self, request: &Request, operation: u64) {
        let host = &request.headers["host"];
        let place =
            format!("http://{host}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{LOCATION}");
        let query = "p=a%2Bb&api-version=2023-07-01";
        self.headers = vec![
            ("azure-asyncoperation", format!("{place}/operations/{operation}?{query}")),
            ("location", format!("{place}/operations/{operation}?{query}&monitor=true")),
            ("retry-after", "1".to_owned()),
        ];
    }

    fn create(&mut self, request: &Request, key: Key, body: Value) -> Reply {
        let provider = if key.0 == NIC { "Microsoft.Network" } else { "Microsoft.Compute" };
        if self.unregistered.is_some_and(|(namespace, _)| namespace == provider) {
            let message = format!("The subscription is not registered to use namespace '{provider}'.");
            return Self::error(409, "MissingSubscriptionRegistration", &message);
        }
        if let Err(refusal) = self.may_create(&key, &body) {
            return refusal;
        }
        if self.things.contains_key(&key) {
            self.changed += u64::from(key.0 == VM);
            return Reply { status: 200, body: self.shown(&key, false).to_string() };
        }
        let steps = if key.0 == VM { self.steps } else { self.steps_of_parts };
        let operation = self.add(key.clone(), body, steps);
        self.announce(request, operation);
        Reply { status: 201, body: self.shown(&key, false).to_string() }
    }

    fn may_create(&self, key: &Key, body: &Value) -> Result<(), Reply> {
        let properties = &body["properties"];
        if body["tags"].as_object().is_some_and(|tags| tags.len() > 50) {
            return Err(Self::error(400, "InvalidTags", "The resource has more than 50 tags."));
        }
        match key.0 {
            NIC => {
                let subnet =
                    properties["ipConfigurations"][0]["properties"]["subnet"]["id"].as_str().unwrap_or_default();
                if self.absent.contains(&"subnet") || !subnet.ends_with(&format!("/{VNET}/subnets/{SUBNET}")) {
                    let message = format!("Resource {subnet} referenced by the network interface was not found.");
                    return Err(Self::error(400, "InvalidResourceReference", &message));
                }
            }
            VM => {
                if let Some((status, code, message)) = self.refusal {
                    return Err(Self::error(status, code, message));
                }
                if self.quota.is_some_and(|quota| self.vms().len() >= quota) {
                    let message = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.";
                    return Err(Self::error(409, "OperationNotAllowed", message));
                }
                let size = &properties["hardwareProfile"]["vmSize"];
                if size != SIZE && size != LARGE {
                    return Err(Self::error(
                        400,
                        "InvalidParameter",
                        &format!("The value {size} of vmSize is invalid."),
                    ));
                }
                for nic in properties["networkProfile"]["networkInterfaces"].as_array().into_iter().flatten() {
                    let Some(found) = self.things.get(&(NIC, last(&nic["id"]))) else {
                        return Err(Self::error(404, "NotFound", &format!("NIC {} was not found.", nic["id"])));
                    };
                    let holder = &found.value["properties"]["virtualMachine"]["id"];
                    if !holder.is_null() && last(holder) != key.1 {
                        return Err(Self::error(400, "NicInUse", "The NIC is in use."));
                    }
                }
                for disk in properties["storageProfile"]["dataDisks"].as_array().into_iter().flatten() {
                    let is_there = self.things.contains_key(&(DISK, last(&disk["managedDisk"]["id"])));
                    if disk["createOption"] == "Attach" && !is_there {
                        return Err(Self::error(404, "ResourceNotFound", "The disk was not found."));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn delete(&mut self, request: &Request, key: &Key) -> Reply {
        let exists = |holder: &Value| holder.is_string() && self.things.contains_key(&(VM, last(holder)));
        let shown = self.things.get(key).map(|thing| thing.value.clone()).unwrap_or_default();
        let of_nic = exists(&shown["properties"]["virtualMachine"]["id"]);
        let of_disk = exists(&shown["managedBy"]);
        let Some(thing) = self.things.get_mut(key) else { return Reply { status: 204, body: String::new() } };
        if of_nic {
            return Self::error(
                400,
                "NicInUse",
                "Network Interface is used by existing resource and cannot be deleted.",
            );
        }
        if of_disk {
            return Self::error(409, "OperationNotAllowed", &format!("Disk {} is attached to VM.", key.1));
        }
        let steps = if key.0 == VM { self.steps } else { self.steps_of_parts };
        let operation = self.operations.len() as u64 + 1;
        thing.value["properties"]["provisioningState"] = json!("Deleting");
        (thing.is_going, thing.left, thing.operation) = (true, steps, operation);
        self.operations.insert(operation, (key.clone(), None, false));
        self.announce(request, operation);
        if steps == 0 {
            self.complete(key);
        }
        Reply { status: 202, body: String::new() }
    }

    fn patch(&mut self, key: &Key, body: &Value) -> Reply {
        let Some(thing) = self.things.get_mut(key) else { return Self::not_found(key.0, &key.1) };
        thing.value["tags"] = body["tags"].clone();
        Reply { status: 200, body: self.shown(key, false).to_string() }
    }

    fn operation(&mut self, number: u64) -> Reply {
        let Some((key, ..)) = self.operations.get(&number).cloned().filter(|_| !self.forgets_operations) else {
            return Self::error(404, "NotFound", "The operation was not found.");
        };
        self.look(&key);
        let (_, error, is_done) = &self.operations[&number];
        let status = match (is_done, error) {
            (false, _) => "InProgress",
            (true, None) => "Succeeded",
            (true, Some(_)) => "Failed",
        };
        let mut report = json!({"name": number.to_string(), "status": status, "startTime": "2026-11-01T00:00:00Z"});
        if let Some(error) = error {
            report["error"] = error.clone();
        }
        self.headers = vec![("retry-after", "1".to_owned())];
        Reply { status: 200, body: report.to_string() }
    }

    fn query(&mut self, body: &Value) -> Reply {
        let query = body["query"].as_str().unwrap_or_default();
        let (Some(group), Some(tags)) = (literals(query, "resourceGroup =~"), literals(query, "tagKeys has")) else {
            self.violations.push(format!("a query that the fake cannot read: {query}"));
            return Self::error(400, "BadRequest", "The query is invalid.");
        };
        let is_in = |value: &Value| {
            let keys = value["tags"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
            tags.iter().all(|tag| keys.clone().any(|key| has(key, tag)))
        };
        let is_of_group = |value: &Value| {
            let own = value["id"].as_str().and_then(|id| id.split('/').nth(4)).unwrap_or_default();
            group.iter().any(|one| one.eq_ignore_ascii_case(own))
        };
        let found = self.things.iter().filter(|((kind, _), one)| *kind == VM || is_in(&one.value));
        let all: Vec<Value> =
            found.filter(|(_, one)| is_of_group(&one.value)).map(|(_, one)| row(&one.value)).collect();
        let begin: usize = body["options"]["$skipToken"].as_str().map_or(0, |token| token.parse().unwrap());
        let data: Vec<&Value> = all.iter().skip(begin).take(self.page).collect();
        let next = begin + data.len();
        let mut page = json!({
            "totalRecords": all.len(), "count": data.len(), "data": data, "facets": [],
            "resultTruncated": if next < all.len() { "true" } else { "false" },
        });
        // Without the column there are no further pages.
        if next < all.len() && query.contains("project id") {
            page["$skipToken"] = json!(next.to_string());
        }
        self.definitions.check("QueryResponse", &page).unwrap();
        Reply { status: 200, body: page.to_string() }
    }

    fn image(&self, parts: &[&str]) -> Reply {
        let [
            location,
            "publishers",
            publisher,
            "artifacttypes",
            "vmimage",
            "offers",
            offer,
            "skus",
            sku,
            "versions",
            version,
        ] = parts
        else {
            return Self::error(404, "NotFound", "There is no such path.");
        };
        if format!("{publisher}:{offer}:{sku}:{version}") != URN
            || *location != LOCATION
            || self.absent.contains(&"image")
        {
            return Self::error(404, "NotFound", "Artifact: VMImage was not found.");
        }
        let path = parts.join("/");
        let image = json!({
            "id": format!("/Subscriptions/{SUBSCRIPTION}/Providers/Microsoft.Compute/Locations/{path}"), "name": version,
            "location": LOCATION, "properties": {"plan": {"name": sku, "product": offer, "publisher": publisher}},
        });
        self.definitions.check("VirtualMachineImage", &image).unwrap();
        Reply { status: 200, body: image.to_string() }
    }

    fn agreement(&self) -> Reply {
        let Some(accepted) = self.terms else { return Self::error(404, "NotFound", "There are no terms.") };
        let terms = json!({
            "id": "terms", "name": "greatest", "type": "Microsoft.MarketplaceOrdering/offertypes",
            "properties": {"publisher": "sap", "product": "gardenlinux", "plan": "greatest", "signature": "s", "accepted": accepted},
        });
        self.definitions.check("AgreementTerms", &terms).unwrap();
        Reply { status: 200, body: terms.to_string() }
    }

    fn provider(&mut self, namespace: &str, is_request: bool) -> Reply {
        let left = match &mut self.unregistered {
            Some((name, left)) if *name == namespace => {
                *left = left.saturating_sub(usize::from(!is_request));
                *left
            }
            _ => 0,
        };
        if left == 0 && !is_request {
            self.unregistered = self.unregistered.filter(|(name, _)| *name != namespace);
        }
        let state = if left == 0 && !is_request { "Registered" } else { "Registering" };
        let provider = json!({"id": "p", "namespace": namespace, "registrationState": state});
        self.definitions.check("Provider", &provider).unwrap();
        Reply { status: 200, body: provider.to_string() }
    }

    fn skus(&self) -> Reply {
        let size = |name: &str, cores: u32| {
            let restriction = |reason: &str| json!({"type": "Location", "values": [LOCATION], "reasonCode": reason});
            json!({
                "resourceType": "virtualMachines", "name": name, "family": "standardDSv5Family", "locations": [LOCATION],
                "locationInfo": [{"location": LOCATION, "zones": ["1", "2"]}],
                "capabilities": [
                    {"name": "vCPUs", "value": cores.to_string()}, {"name": "MemoryGB", "value": "3.5"},
                    {"name": "CpuArchitectureType", "value": "x64"},
                ],
                "restrictions": self.restriction.map(restriction).into_iter().collect::<Vec<_>>(),
            })
        };
        let sizes = if self.absent.contains(&"size") { vec![] } else { vec![size(SIZE, 2), size(LARGE, 4)] };
        Reply { status: 200, body: json!({"value": sizes}).to_string() }
    }

    fn usages(&self) -> Reply {
        let limit = self.quota.map_or(100, |quota| quota * 2);
        let usage = |name: &str| {
            let name = json!({"value": name, "localizedValue": name});
            json!({"name": name, "currentValue": self.vms().len() * 2, "limit": limit, "unit": "Count"})
        };
        Reply { status: 200, body: json!({"value": [usage("cores"), usage("standardDSv5Family")]}).to_string() }
    }

    fn token(&mut self, request: &Request) -> Reply {
        let form: BTreeMap<String, String> = pairs(&request.body);
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let refuse = |name: &str| {
            let body = json!({"error": name, "error_description": "AADSTS7000215: Invalid client secret provided."});
            Reply { status: 401, body: body.to_string() }
        };
        let is_secret = field("client_secret") == CLIENT_SECRET;
        let is_assertion = field("client_assertion") == ASSERTION
            && field("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        let is_right = request.path == format!("/{TENANT}/oauth2/v2.0/token")
            && field("client_id") == CLIENT
            && field("scope") == SCOPE
            && field("grant_type") == "client_credentials";
        if !is_right || is_secret == is_assertion {
            return refuse("invalid_client");
        }
        self.tokens += 1;
        let body = json!({"token_type": "Bearer", "expires_in": 3599, "access_token": format!("token-top-secret-{}", self.tokens)});
        Reply { status: 200, body: body.to_string() }
    }

    /// All tokens so far are not valid any more.
    pub fn expire_tokens(&mut self) {
        self.expired = self.tokens;
    }

    fn authenticated(&self, request: &Request) -> bool {
        let token = request.headers.get("authorization").map(String::as_str).unwrap_or_default();
        let number = token.strip_prefix("Bearer token-top-secret-").and_then(|number| number.parse().ok());
        number.is_some_and(|number: u64| number > self.expired && number <= self.tokens)
    }

    /// Reads the body of a request, which has to fit its definition.
    fn body(&mut self, definition: &str, request: &Request) -> Result<Value, Reply> {
        let checked = match serde_json::from_str(&request.body) {
            Ok(value) => self.definitions.check(definition, &value).map(|()| value),
            Err(error) => Err(error.to_string()),
        };
        checked.map_err(|problem| {
            self.violations.push(format!("{definition}: {problem}"));
            Self::error(400, "InvalidRequestContent", &problem)
        })
    }

    fn checked_version(&mut self, request: &Request) -> Result<(), Reply> {
        let query = pairs(&request.query);
        let version = query.get("api-version").map(String::as_str).unwrap_or_default();
        let parts: Vec<&str> = request.path.split('/').collect();
        let expected = VERSIONS.iter().find(|(name, _)| parts.contains(name)).map(|(_, version)| *version);
        if Some(version) == expected || (self.takes_any_version && version.starts_with("20")) {
            return Ok(());
        }
        self.violations.push(format!("api-version {version:?} of {}", request.path));
        Err(Self::error(400, "InvalidApiVersionParameter", "The api-version is invalid."))
    }

    fn of_resource(&mut self, request: &Request, kind: &str, name: &str) -> Reply {
        let (kind, definition) = match kind.to_ascii_lowercase().as_str() {
            "virtualmachines" => (VM, "VirtualMachine.request"),
            "networkinterfaces" => (NIC, "NetworkInterface.request"),
            _ => (DISK, "Disk.request"),
        };
        let key = (kind, name.to_ascii_lowercase());
        match request.method.as_str() {
            "GET" => self.get(&key, request.query.contains("expand=instanceView")),
            "DELETE" => self.delete(request, &key),
            "PATCH" => match self.body("VirtualMachineUpdate.request", request) {
                Ok(body) => self.patch(&key, &body),
                Err(refusal) => refusal,
            },
            _ => match self.body(definition, request) {
                Ok(body) => self.create(request, key, body),
                Err(refusal) => refusal,
            },
        }
    }

    fn of_subscription(&mut self, request: &Request, path: &[&str]) -> Reply {
        match path {
            ["resourceGroups", group, ..] if !group.eq_ignore_ascii_case(GROUP) || self.absent.contains(&"group") => {
                Self::error(404, "ResourceGroupNotFound", &format!("Resource group '{group}' could not be found."))
            }
            ["resourceGroups", _] => {
                let group = json!({"id": "g", "name": GROUP, "location": LOCATION, "properties": {"provisioningState": "Succeeded"}});
                self.definitions.check("ResourceGroup", &group).unwrap();
                Reply { status: 200, body: group.to_string() }
            }
            ["resourceGroups", _, "providers", "Microsoft.Network", "virtualNetworks", vnet, "subnets", name] => {
                if *vnet != VNET || *name != SUBNET || self.absent.contains(&"subnet") {
                    return Self::not_found("subnets", name);
                }
                let id = request.path.clone();
                let subnet = json!({"id": id, "name": name, "properties": {"addressPrefix": "10.250.0.0/16"}});
                self.definitions.check("Subnet", &subnet).unwrap();
                Reply { status: 200, body: subnet.to_string() }
            }
            ["resourceGroups", _, "providers", _, kind, name] => self.of_resource(request, kind, name),
            ["providers", "Microsoft.Compute", "locations", _, "operations", number] => {
                self.operation(number.parse().unwrap_or_default())
            }
            ["providers", "Microsoft.Compute", "locations", _, "usages"] => self.usages(),
            ["providers", "Microsoft.Compute", "locations", rest @ ..] => self.image(rest),
            ["providers", "Microsoft.Compute", "skus"] => self.skus(),
            ["providers", "Microsoft.MarketplaceOrdering", ..] if request.method == "PUT" => {
                match self.body("AgreementTerms", request) {
                    Ok(terms) => {
                        self.terms = terms["properties"]["accepted"].as_bool();
                        self.agreement()
                    }
                    Err(refusal) => refusal,
                }
            }
            ["providers", "Microsoft.MarketplaceOrdering", ..] => self.agreement(),
            ["providers", namespace, "register"] => self.provider(namespace, true),
            ["providers", namespace] => self.provider(namespace, false),
            _ => Self::error(404, "NotFound", "There is no such path."),
        }
    }
}

impl FakeCloud for Arm {
    fn call(&self, request: &Request) -> &'static str {
        let parts: Vec<&str> = request.path.split('/').skip(1).collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", [_, "oauth2", "v2.0", "token"]) => "token",
            ("POST", ["providers", "Microsoft.ResourceGraph", "resources"]) => "graph.query",
            (method, ["subscriptions", _, "resourceGroups", _, "providers", _, kind, _]) => {
                match (method, kind.to_ascii_lowercase().as_str()) {
                    ("GET", "virtualmachines") => "vm.get",
                    ("PUT", "virtualmachines") => "vm.put",
                    ("PATCH", "virtualmachines") => "vm.patch",
                    ("DELETE", "virtualmachines") => "vm.delete",
                    ("GET", "networkinterfaces") => "nic.get",
                    ("PUT", "networkinterfaces") => "nic.put",
                    ("DELETE", "networkinterfaces") => "nic.delete",
                    ("GET", "disks") => "disk.get",
                    ("PUT", "disks") => "disk.put",
                    ("DELETE", "disks") => "disk.delete",
                    _ => "unknown",
                }
            }
            ("GET", ["subscriptions", _, "resourceGroups", _, "providers", _, "virtualNetworks", _, "subnets", _]) => {
                "subnet.get"
            }
            ("GET", ["subscriptions", _, "resourceGroups", _]) => "group.get",
            ("GET", ["subscriptions", _, "providers", _, "locations", _, "operations", _]) => "operation.get",
            ("GET", ["subscriptions", _, "providers", _, "locations", _, "usages"]) => "usages.list",
            ("GET", ["subscriptions", _, "providers", _, "locations", ..]) => "image.get",
            ("GET", ["subscriptions", _, "providers", _, "skus"]) => "skus.list",
            (
                "GET",
                ["subscriptions", _, "providers", "Microsoft.MarketplaceOrdering", .., "agreements", "current"],
            ) => "terms.get",
            (
                "PUT",
                ["subscriptions", _, "providers", "Microsoft.MarketplaceOrdering", .., "agreements", "current"],
            ) => "terms.put",
            ("POST", ["subscriptions", _, "providers", _, "register"]) => "provider.register",
            ("GET", ["subscriptions", _, "providers", _]) => "provider.get",
            _ => "unknown",
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        self.headers.clear();
        let parts: Vec<&str> = request.path.split('/').skip(1).collect();
        match parts.as_slice() {
            [_, "oauth2", ..] => return self.token(request),
            _ if !self.authenticated(request) => {
                return Self::error(401, "InvalidAuthenticationToken", "The access token is invalid.");
            }
            _ => {}
        }
        if let Err(refusal) = self.checked_version(request) {
            return refusal;
        }
        // As the front ends of Azure do.
        if request.method == "POST" && !request.headers.contains_key("content-length") {
            return Self::error(411, "LengthRequired", "The request must have Content-Length.");
        }
        match parts.as_slice() {
            ["providers", "Microsoft.ResourceGraph", "resources"] => match self.body("QueryRequest", request) {
                Ok(body) => self.query(&body),
                Err(refusal) => refusal,
            },
            ["subscriptions", SUBSCRIPTION, path @ ..] => self.of_subscription(request, path),
            ["subscriptions", other, ..] => {
                Self::error(404, "SubscriptionNotFound", &format!("The subscription '{other}' could not be found."))
            }
            _ => Self::error(404, "NotFound", "There is no such path."),
        }
    }

    fn headers(&mut self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.headers)
    }
}

/// The last part of a resource ID, in lower case.
fn last(id: &Value) -> String {
    id.as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_ascii_lowercase()
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

/// A resource in the Resource Graph.
fn row(value: &Value) -> Value {
    json!({
        "id": value["id"], "name": value["name"], "type": value["type"].as_str().unwrap().to_ascii_lowercase(),
        "tags": value["tags"], "managedBy": value["managedBy"].as_str().unwrap_or_default(),
        "holder": value["properties"]["virtualMachine"]["id"].as_str().unwrap_or_default(),
    })
}

/// The texts in a query after each place with these words.
fn literals(query: &str, words: &str) -> Option<Vec<String>> {
    let all: Vec<String> = query.split(words).skip(1).map(literal).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

/// The text in quotes at the beginning.
fn literal(text: &str) -> Option<String> {
    let mut found = String::new();
    let mut letters = text.trim_start().strip_prefix('\'')?.chars();
    loop {
        match letters.next()? {
            '\'' => return Some(found),
            '\\' => found.push(letters.next()?),
            letter => found.push(letter),
        }
    }
}

/// The operator `has`: a word, or several between others, in any case.
fn has(text: &str, words: &str) -> bool {
    let (text, words) = (text.to_ascii_lowercase(), words.to_ascii_lowercase());
    let is_end = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_ascii_alphanumeric());
    text.match_indices(&words)
        .any(|(at, _)| is_end(text[..at].chars().next_back()) && is_end(text[at + words.len()..].chars().next()))
}

/// The parameters of a form or of a query.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let plain = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    text.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (plain(key), plain(value))).collect()
}
