//! A fake of metal-api: it keeps machines and allocations as the real one does, and refuses every request that does not fit the
//! definitions of its Swagger document.
//!
//! States, filters, tags and texts of errors follow the source of metal-api (a405f46d, 2026-06).

use std::collections::BTreeMap;

use jiff::Timestamp;
use ring::hmac;
use serde_json::{Value, json};

use super::kit::{
    server::{FakeCloud, Reply, Request},
    swagger::Definitions,
};

/// The path of the API on its host.
pub const BASE: &str = "/metal";
pub const PROJECT: &str = "00000000-0000-4000-8000-0000000000aa";
pub const PARTITION: &str = "fra-equ01";
pub const NETWORK: &str = "private-network";
pub const SIZE: &str = "c1-xlarge-x86";
/// A size of servers that only some tests have.
pub const LARGE: &str = "c2-xlarge-x86";
pub const IMAGE: &str = "ubuntu-24.04";
pub const HMAC: &str = "hmac-top-secret";
pub const TOKEN: &str = "bearer-top-secret";

/// An HMAC may be so old, in seconds.
const LIFETIME: i64 = 15;

/// A server in a rack, allocated or not.
#[derive(Clone, Debug)]
pub struct Machine {
    pub id: String,
    pub partition: String,
    pub size: String,
    pub rack: String,
    pub tags: Vec<String>,
    pub allocation: Option<Value>,
    pub is_locked: bool,
    /// A number that grows with the time of its last release. The machine with the lowest is allocated first.
    freed: u64,
    /// So many look-ups show it allocated although it was freed.
    lingers: usize,
}

/// The API with its machines.
pub struct MetalApi {
    definitions: Definitions,
    pub machines: BTreeMap<String, Machine>,
    /// Allocations that were ever made.
    pub allocated: u64,
    /// Requests that do not fit the document.
    pub violations: Vec<String>,
    /// The project may have so many machines.
    pub quota: Option<usize>,
    /// Addresses that are left in the network.
    pub addresses: usize,
    /// A machine that is freed is shown as allocated by so many look-ups.
    pub lingers: usize,
    /// Bodies of errors are objects, as in the document, and not strings, as of the real server.
    pub has_plain_errors: bool,
    /// Resources that are not there.
    pub absent: Vec<&'static str>,
    /// The number in the ID of the first machine.
    first: usize,
    frees: u64,
}

impl MetalApi {
    /// An API with so many free machines.
    pub fn new(machines: usize) -> Self {
        Self::starting_at(0, machines)
    }

    /// The same; the numbers in the IDs of its machines begin there, so that several fakes have different ones.
    pub fn starting_at(first: usize, machines: usize) -> Self {
        let mut api = Self {
            definitions: Definitions::of(include_str!("metal-api.json")),
            machines: BTreeMap::new(),
            allocated: 0,
            violations: Vec::new(),
            quota: None,
            addresses: 1 << 20,
            lingers: 0,
            has_plain_errors: false,
            absent: Vec::new(),
            first,
            frees: 0,
        };
        api.add(SIZE, machines);
        api
    }

    /// Adds free machines of a size.
    pub fn add(&mut self, size: &str, machines: usize) {
        let first = self.machines.len();
        for number in first..first + machines {
            let machine = Machine {
                id: format!("{:08}-0000-4000-8000-000000000000", self.first + number),
                partition: PARTITION.to_owned(),
                size: size.to_owned(),
                rack: format!("rack-{}", number % 3),
                tags: Vec::new(),
                allocation: None,
                is_locked: false,
                freed: 0,
                lingers: 0,
            };
            self.machines.insert(machine.id.clone(), machine);
        }
    }

    /// Machines that are allocated, and not only shown so.
    pub fn allocations(&self) -> Vec<&Machine> {
        self.machines.values().filter(|machine| machine.allocation.is_some() && machine.lingers == 0).collect()
    }

    /// Machines that are shown as allocated.
    pub fn shown_allocations(&self) -> usize {
        self.machines.values().filter(|machine| machine.allocation.is_some()).count()
    }

    /// Allocates a free machine behind the back of mcm; returns its ID.
    pub fn put(&mut self, name: &str, role: &str, tags: &[&str]) -> String {
        let body = json!({"name": name, "hostname": name, "projectid": PROJECT, "tags": tags, "networks": []});
        let id = self.free_machine(PARTITION, SIZE).unwrap();
        self.give(&id, &body, role);
        id
    }

    /// Frees a machine behind the back of mcm.
    pub fn take(&mut self, id: &str) {
        self.frees += 1;
        let machine = self.machines.get_mut(id).unwrap();
        (machine.allocation, machine.tags, machine.freed) = (None, Vec::new(), self.frees);
    }

    /// An error as the server sends it.
    pub fn error(&self, status: u16, message: &str) -> Reply {
        let text = json!({"statuscode": status, "message": message}).to_string();
        let body = if self.has_plain_errors { text } else { Value::from(text).to_string() };
        Reply { status, body }
    }

    fn free_machine(&self, partition: &str, size: &str) -> Option<String> {
        let is_free = |one: &&Machine| {
            one.allocation.is_none() && !one.is_locked && one.partition == partition && one.size == size
        };
        let free = self.machines.values().filter(is_free);
        free.min_by_key(|one| (one.freed, one.id.clone())).map(|one| one.id.clone())
    }

    fn give(&mut self, id: &str, body: &Value, role: &str) {
        let number = self.allocated;
        self.allocated += 1;
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        let networks = json!([
            network(NETWORK, true, &format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255)),
            network("internet", false, &format!("198.51.{}.{}", (number >> 8) & 255, number & 255)),
        ]);
        let allocation = json!({
            "allocationuuid": format!("{number:08}-1111-4000-8000-000000000000"), "created": "2026-11-01T00:00:00.000Z",
            "creator": "metal-admin@metal-stack.io", "description": text("description"), "hostname": text("hostname"),
            "name": text("name"), "networks": networks, "project": text("projectid"), "reinstall": false, "role": role,
            "ssh_pub_keys": body["ssh_pub_keys"], "succeeded": false, "user_data": text("user_data"),
        });
        let machine = self.machines.get_mut(id).unwrap();
        machine.allocation = Some(allocation);
        machine.tags = tags_of(&machine.rack, &body["tags"]);
    }

    fn allocate(&mut self, body: &Value) -> Reply {
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        for (field, kind, known) in [
            ("imageid", "image", &[IMAGE][..]),
            ("sizeid", "size", &[SIZE, LARGE]),
            ("partitionid", "partition", &[PARTITION]),
        ] {
            if !known.contains(&text(field)) {
                return self.error(400, &format!("NotFound no {kind} with id {:?} found", text(field)));
            }
        }
        if text("projectid") != PROJECT {
            return self.error(404, &format!("entity of type:project with id:{:?} not found", text("projectid")));
        }
        let networks = body["networks"].as_array().filter(|networks| !networks.is_empty());
        let Some(networks) = networks else { return self.error(400, "network ids cannot be empty") };
        if networks.iter().any(|network| network["networkid"] != NETWORK) {
            return self.error(404, "unable to gather networks:NotFound no network with id found");
        }
        if self.quota.is_some_and(|quota| self.allocations().len() >= quota) {
            return self.error(422, &format!("project quota for machines reached max:{}", self.quota.unwrap()));
        }
        let Some(id) = self.free_machine(text("partitionid"), text("sizeid")) else {
            return self.error(422, "no machine available");
        };
        if self.addresses == 0 {
            let message = "unable to make networks:unable to allocate an ip in network: private-network Internal cannot allocate \
                           free ip in ipam, no ips left";
            return self.error(500, message);
        }
        self.addresses -= 1;
        self.give(&id, body, "machine");
        self.machine(&id)
    }

    fn find(&mut self, body: &Value) -> Reply {
        let Value::Object(filters) = body else { return self.error(400, "no filter") };
        let mut found = Vec::new();
        for machine in self.machines.values() {
            if !filters.iter().all(|(name, wanted)| matches(machine, name, wanted)) {
                continue;
            }
            found.push(machine.id.clone());
        }
        let all: Vec<Value> = found.iter().map(|id| self.shown(id)).collect();
        Reply { status: 200, body: Value::from(all).to_string() }
    }

    fn free(&mut self, id: &str) -> Reply {
        let Some(machine) = self.machines.get_mut(id) else { return self.not_found(id) };
        if machine.is_locked {
            return self.error(422, "machine is locked");
        }
        if self.lingers > 0 {
            machine.lingers = self.lingers;
            return self.machine(id);
        }
        self.take(id);
        self.machine(id)
    }

    fn update(&mut self, body: &Value) -> Reply {
        let id = body["id"].as_str().unwrap_or_default().to_owned();
        let Some(machine) = self.machines.get_mut(&id) else { return self.not_found(&id) };
        let Some(allocation) = &mut machine.allocation else {
            return self.error(400, "only allocated machines can be updated");
        };
        allocation["description"] = body["description"].clone();
        if body["tags"].as_array().is_some_and(|tags| !tags.is_empty()) {
            machine.tags = tags_of(&machine.rack, &body["tags"]);
        }
        self.machine(&id)
    }

    fn not_found(&self, id: &str) -> Reply {
        self.error(404, &format!("NotFound no machine with id {id:?} found"))
    }

    fn machine(&mut self, id: &str) -> Reply {
        Reply { status: 200, body: self.shown(id).to_string() }
    }

    /// A machine in the form of the API, which is checked against the document.
    fn shown(&mut self, id: &str) -> Value {
        let machine = &self.machines[id];
        let mut shown = json!({
            "id": machine.id, "tags": machine.tags, "rackid": machine.rack, "liveliness": "Alive",
            "bios": {"date": "", "vendor": "", "version": ""},
            "events": {"crash_loop": false, "failed_machine_reclaim": false, "log": []},
            "hardware": {"cpu_cores": 8, "disks": [], "memory": 1, "nics": []},
            "ledstate": {"description": "", "value": ""},
            "partition": {"id": machine.partition, "bootconfig": {}},
            "size": {"id": machine.size, "constraints": [], "labels": {}},
            "state": {"value": if machine.is_locked { "LOCKED" } else { "" }, "description": "", "metal_hammer_version": ""},
        });
        if let Some(allocation) = &machine.allocation {
            shown["allocation"] = allocation.clone();
        }
        self.definitions.check("v1.MachineResponse", &shown).unwrap();
        if machine.lingers == 1 {
            self.take(id);
        }
        if let Some(machine) = self.machines.get_mut(id) {
            machine.lingers = machine.lingers.saturating_sub(1);
        }
        shown
    }

    fn resource(&self, kind: &'static str, id: &str) -> Reply {
        let (definition, known, value) = match kind {
            "partition" => ("v1.PartitionResponse", PARTITION, json!({"id": id, "bootconfig": {}})),
            "size" => ("v1.SizeResponse", SIZE, json!({"id": id, "constraints": [], "labels": {}})),
            "image" => {
                let image = json!({
                    "id": format!("{id}.20261101"), "expirationDate": "2027-11-01T00:00:00.000Z", "features": ["machine"],
                    "classification": "supported",
                });
                ("v1.ImageResponse", IMAGE, image)
            }
            "project" => ("v1.ProjectResponse", PROJECT, json!({"meta": {"id": id}, "name": "team"})),
            _ => {
                let usage = json!({"available_ips": 100, "available_prefixes": 0, "used_ips": 3, "used_prefixes": 0});
                let network = json!({
                    "id": id, "consumption": {}, "destinationprefixes": [], "nat": false, "nattype": "", "networktype": "child",
                    "partitionid": PARTITION, "prefixes": ["10.0.0.0/22"], "privatesuper": false, "projectid": PROJECT,
                    "underlay": false, "usage": usage,
                });
                ("v1.NetworkResponse", NETWORK, network)
            }
        };
        if id != known || self.absent.contains(&kind) {
            return self.error(404, &format!("NotFound no {kind} with id {id:?} found"));
        }
        self.definitions.check(definition, &value).unwrap();
        Reply { status: 200, body: value.to_string() }
    }

    fn capacity(&self) -> Reply {
        let of_state = |is_free: bool| self.machines.values().filter(|one| one.allocation.is_none() == is_free).count();
        let capacity = json!([{"id": PARTITION, "servers": [{
            "size": SIZE, "total": self.machines.len(), "free": of_state(true), "allocated": of_state(false),
        }]}]);
        self.definitions.check("v1.PartitionCapacity", &capacity[0]).unwrap();
        Reply { status: 200, body: capacity.to_string() }
    }

    fn user(&self) -> Reply {
        let user = json!({
            "EMail": "metal-admin@metal-stack.io", "Groups": [], "Issuer": "", "Name": "Metal-Admin", "Subject": "",
            "Tenant": "metal-stack",
        });
        self.definitions.check("v1.User", &user).unwrap();
        Reply { status: 200, body: user.to_string() }
    }

    /// Reads the body of a request, which has to fit its definition.
    fn body(&mut self, definition: &str, request: &Request) -> Result<Value, Reply> {
        let checked = match serde_json::from_str(&request.body) {
            Ok(value) => self.definitions.check(definition, &value).map(|()| value),
            Err(error) => Err(error.to_string()),
        };
        checked.map_err(|problem| {
            self.violations.push(format!("{definition}: {problem}"));
            self.error(400, &problem)
        })
    }
}

impl FakeCloud for MetalApi {
    fn call(&self, request: &Request) -> &'static str {
        let path = request.path.strip_prefix(BASE).unwrap_or_default();
        match (request.method.as_str(), path.split('/').skip(1).collect::<Vec<_>>().as_slice()) {
            ("POST", ["v1", "machine", "allocate"]) => "machine.allocate",
            ("POST", ["v1", "machine", "find"]) => "machine.find",
            ("POST", ["v1", "machine"]) => "machine.update",
            ("GET", ["v1", "machine", _]) => "machine.get",
            ("DELETE", ["v1", "machine", _, "free"]) => "machine.free",
            ("GET", ["v1", "user", "me"]) => "user.me",
            ("POST", ["v1", "partition", "capacity"]) => "partition.capacity",
            ("GET", ["v1", "image", _, "latest"]) => "image.latest",
            ("GET", ["v1", "partition", _]) => "partition.get",
            ("GET", ["v1", "size", _]) => "size.get",
            ("GET", ["v1", "project", _]) => "project.get",
            ("GET", ["v1", "network", _]) => "network.get",
            _ => "unknown",
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        if let Err(problem) = authenticated(request) {
            return self.error(401, problem);
        }
        let call = self.call(request);
        let parts: Vec<&str> = request.path.split('/').collect();
        // `/metal/v1/<kind>/<id>`
        let id = parts.get(4).copied().unwrap_or_default().to_owned();
        let body = match call {
            "machine.allocate" => self.body("v1.MachineAllocateRequest", request),
            "machine.find" => self.body("v1.MachineFindRequest", request),
            "machine.update" => self.body("v1.MachineUpdateRequest", request),
            "partition.capacity" => self.body("v1.PartitionCapacityRequest", request),
            _ => Ok(Value::Null),
        };
        let body = match body {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        match call {
            "machine.allocate" => self.allocate(&body),
            "machine.find" => self.find(&body),
            "machine.update" => self.update(&body),
            "machine.get" if self.machines.contains_key(&id) => self.machine(&id),
            "machine.get" => self.not_found(&id),
            "machine.free" => self.free(&id),
            "user.me" => self.user(),
            "partition.capacity" => self.capacity(),
            "image.latest" => self.resource("image", &id),
            "partition.get" => self.resource("partition", &id),
            "size.get" => self.resource("size", &id),
            "project.get" => self.resource("project", &id),
            "network.get" => self.resource("network", &id),
            _ => Reply { status: 404, body: "404: Page Not Found".to_owned() },
        }
    }
}

fn authenticated(request: &Request) -> Result<(), &'static str> {
    let header = |name: &str| request.headers.get(name).map(String::as_str).unwrap_or_default();
    let authorization = header("authorization");
    let Some(signature) = authorization.strip_prefix("Metal-Admin ") else {
        return if authorization == format!("Bearer {TOKEN}") { Ok(()) } else { Err("not authenticated") };
    };
    let date: Timestamp = header("x-date").parse().map_err(|_| "no date")?;
    if Timestamp::now().duration_since(date).as_secs().abs() > LIFETIME {
        return Err("the HMAC is too old");
    }
    if header("x-data-salt").len() != 24 {
        return Err("no salt");
    }
    let text = format!("{}{}{}", header("x-date"), request.method, header("x-data-salt"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, HMAC.as_bytes());
    let expected: String =
        hmac::sign(&key, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if signature == expected { Ok(()) } else { Err("wrong hmac") }
}

fn network(id: &str, is_private: bool, address: &str) -> Value {
    json!({
        "networkid": id, "private": is_private, "ips": [address], "asn": 4_200_000_001_i64, "destinationprefixes": [],
        "nat": !is_private, "nattypev2": "", "networktype": "", "networktypev2": "", "prefixes": [], "projectid": PROJECT,
        "underlay": false, "vrf": 1,
    })
}

/// Tags as the server stores them: of several with one key the last, and some of its own.
fn tags_of(rack: &str, given: &Value) -> Vec<String> {
    let given = given.as_array().into_iter().flatten().filter_map(Value::as_str);
    let (labels, mut tags): (Vec<&str>, Vec<&str>) = given.partition(|tag| tag.contains('='));
    tags.sort_unstable();
    tags.dedup();
    let rack = format!("machine.metal-stack.io/rack={rack}");
    let labels = labels.into_iter().chain([rack.as_str()]).filter_map(|label| label.split_once('='));
    let labels: BTreeMap<&str, &str> = labels.collect();
    let labels = labels.into_iter().map(|(key, value)| format!("{key}={value}"));
    tags.into_iter().map(str::to_owned).chain(labels).collect()
}

fn matches(machine: &Machine, filter: &str, wanted: &Value) -> bool {
    if wanted.is_null() {
        return true;
    }
    let of_allocation = |field: &str| machine.allocation.as_ref().is_some_and(|one| one[field] == *wanted);
    match filter {
        "id" => machine.id == *wanted,
        "tags" => wanted.as_array().unwrap().iter().all(|tag| machine.tags.iter().any(|own| own == tag)),
        "allocation_name" => of_allocation("name"),
        "allocation_hostname" => of_allocation("hostname"),
        "allocation_project" => of_allocation("project"),
        "allocation_role" => of_allocation("role"),
        "partition_id" => machine.partition == *wanted,
        "sizeid" => machine.size == *wanted,
        other => panic!("the fake has no filter {other}"),
    }
}
