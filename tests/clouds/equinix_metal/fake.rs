//! A fake of the API of Equinix Metal: it keeps devices and reservations, and refuses every request that does not fit the official
//! OpenAPI document: query parameters, their bounds, and bodies. Its own responses have to fit it.
//!
//! The document describes states, filters, pages and the form of errors. Texts of errors about stock, reservations, early deletions
//! and hidden devices are from reports of users of other clients; that of the quota is an assumption.

use std::collections::{BTreeMap, BTreeSet};

use axum::{extract::Query, http::Uri};
use serde_json::{Value, json};

use super::kit::{
    server::{FakeCloud, Reply, Request},
    swagger::Definitions,
};

/// The path of the API on its host.
pub const BASE: &str = "/metal/v1";
pub const PROJECT: &str = "93125c2a-8b78-4d4f-a3c4-7367d6b7cca8";
pub const METRO: &str = "ny";
pub const PLAN: &str = "c3.small.x86";
/// A plan of servers that only some tests have.
pub const LARGE: &str = "m3.large.x86";
pub const SYSTEM: &str = "ubuntu_22_04";
pub const SSH_KEY: &str = "0a6b9d9c-5c2a-4c7e-9d0a-3b1f5e8c7d21";
pub const TOKEN: &str = "token-top-secret";

const DOCUMENT: &str = include_str!("metal-api.json");
/// Also a system: the device boots from a script.
const CUSTOM_IPXE: &str = "custom_ipxe";
/// The default of the API.
const PER_PAGE: usize = 10;
/// Any free reservation.
const NEXT_AVAILABLE: &str = "next-available";

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    pub id: String,
    pub hostname: String,
    pub tags: Vec<String>,
    pub state: &'static str,
    pub metro: String,
    pub plan: String,
    pub project: String,
    pub reservation: Option<String>,
    pub is_locked: bool,
    /// The request that created it.
    pub order: Value,
    number: u64,
    /// So many look-ups show it after it was deleted.
    lingers: usize,
}

/// The API with its devices.
pub struct MetalApi {
    definitions: Definitions,
    /// Query parameters by operation.
    queries: Value,
    /// By the order of their creation.
    pub devices: Vec<Device>,
    /// Free servers on demand, by plan.
    pub free: BTreeMap<String, usize>,
    /// Hardware reservations of the project, all of one plan, and whether they are free.
    pub reservations: BTreeMap<String, bool>,
    /// The number in the ID of the first device.
    pub first: u64,
    /// Devices that were ever created.
    pub created: u64,
    /// Requests that do not fit the document.
    pub violations: Vec<String>,
    /// The project may have so many devices.
    pub quota: Option<usize>,
    /// So many look-ups show a device that was deleted.
    pub lingers: usize,
    /// New devices are being provisioned, and cannot be deleted.
    pub is_slow: bool,
    /// A page has at most so many devices.
    pub largest_page: usize,
    /// Devices that the API refuses to show, although the list has them while they exist.
    pub hidden: BTreeSet<String>,
    /// Devices that no list contains.
    pub unlisted: BTreeSet<String>,
    /// Its deletion is carried out after the next page of a list.
    pub vanishes: Option<String>,
    /// Resources that are not there.
    pub absent: Vec<&'static str>,
}

impl MetalApi {
    /// An API with so many free servers.
    pub fn new(servers: usize) -> Self {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        Self {
            definitions: Definitions::of(DOCUMENT),
            queries: document["queries"].clone(),
            devices: Vec::new(),
            free: [(PLAN.to_owned(), servers)].into(),
            reservations: BTreeMap::new(),
            first: 0,
            created: 0,
            violations: Vec::new(),
            quota: None,
            lingers: 2,
            is_slow: false,
            largest_page: 1000,
            hidden: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            vanishes: None,
            absent: Vec::new(),
        }
    }

    /// Devices that were not deleted.
    pub fn present(&self) -> Vec<&Device> {
        self.devices.iter().filter(|device| device.state != "deprovisioning").collect()
    }

    /// Creates a device behind the back of mcm; returns its ID.
    pub fn put(&mut self, hostname: &str, tags: &[&str]) -> String {
        let order =
            json!({"hostname": hostname, "metro": METRO, "plan": PLAN, "operating_system": SYSTEM, "tags": tags});
        self.give(PROJECT, order, None)
    }

    /// Removes a device, maybe behind the back of mcm; its server is free.
    pub fn take(&mut self, id: &str) {
        let Some(index) = self.devices.iter().position(|device| device.id == id) else { return };
        let device = self.devices.remove(index);
        match device.reservation {
            Some(reservation) => drop(self.reservations.insert(reservation, true)),
            None => *self.free.entry(device.plan).or_default() += 1,
        }
    }

    /// The device with an ID.
    pub fn device(&mut self, id: &str) -> &mut Device {
        self.devices.iter_mut().find(|device| device.id == id).unwrap()
    }

    /// An error as the API sends it.
    pub fn error(&self, status: u16, message: &str) -> Reply {
        let is_single = status == 401 || status == 429;
        let body = if is_single { json!({"error": message}) } else { json!({"errors": [message]}) };
        self.definitions.check("Error", &body).unwrap();
        Reply { status, body: body.to_string() }
    }

    fn give(&mut self, project: &str, order: Value, reservation: Option<String>) -> String {
        let number = self.created;
        self.created += 1;
        let text = |name: &str| order[name].as_str().unwrap_or_default().to_owned();
        let tags = order["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let id = format!("{:08x}-2222-4000-8000-000000000000", self.first + number);
        self.devices.push(Device {
            id: id.clone(),
            hostname: text("hostname"),
            tags: tags.map(str::to_owned).collect(),
            state: if self.is_slow { "provisioning" } else { "active" },
            metro: text("metro"),
            plan: text("plan"),
            project: project.to_owned(),
            reservation,
            is_locked: order["locked"] == true,
            order,
            number,
            lingers: 0,
        });
        id
    }

    fn create(&mut self, project: &str, order: Value) -> Reply {
        if project != PROJECT {
            return self.not_found();
        }
        let text = |name: &str| order[name].as_str().unwrap_or_default();
        let (metro, plan, system) = (text("metro"), text("plan"), text("operating_system"));
        if metro != METRO {
            return self.error(422, &format!("{metro} is not a valid metro"));
        }
        if ![PLAN, LARGE].contains(&plan) {
            return self.error(422, &format!("{plan} is not a valid plan"));
        }
        if ![SYSTEM, CUSTOM_IPXE].contains(&system) {
            return self.error(422, &format!("{system} is not a valid operating system"));
        }
        let is_script = !text("ipxe_script_url").is_empty() || text("userdata").starts_with("#!ipxe");
        if system == CUSTOM_IPXE && !is_script {
            return self.error(422, "An iPXE script is required for custom_ipxe");
        }
        if let Some(quota) = self.quota.filter(|quota| self.present().len() >= *quota) {
            return self.error(422, &format!("You have reached the maximum number of devices: {quota}"));
        }
        let reservation = match text("hardware_reservation_id") {
            "" => {
                let free = self.free.entry(plan.to_owned()).or_default();
                if *free == 0 {
                    let message =
                        format!("The metro {metro} has no provisionable {plan} servers matching your criteria");
                    return self.error(422, &message);
                }
                *free -= 1;
                None
            }
            wanted => match self.reserve(wanted) {
                Ok(id) => Some(id),
                Err(reply) => return reply,
            },
        };
        let id = self.give(project, order, reservation);
        Reply { status: 201, ..self.shown(&id) }
    }

    fn reserve(&mut self, wanted: &str) -> Result<String, Reply> {
        let is_it = |id: &String, is_free: bool| id == wanted || (wanted == NEXT_AVAILABLE && is_free);
        let found = self.reservations.iter_mut().find(|(id, is_free)| is_it(id, **is_free));
        match found {
            Some((id, is_free)) if *is_free => {
                *is_free = false;
                Ok(id.clone())
            }
            Some(_) => Err(self.error(422, "Server is not provisionable")),
            None if wanted == NEXT_AVAILABLE => {
                Err(self.error(422, "There are no provisionable hardware reservations"))
            }
            None => Err(self.error(404, "Hardware reservation not found")),
        }
    }

    fn list(&mut self, project: &str, query: &BTreeMap<String, String>) -> Reply {
        if project != PROJECT {
            return self.not_found();
        }
        let number = |name: &str, default: usize| query.get(name).map_or(default, |text| text.parse().unwrap());
        let (page, per_page) = (number("page", 1), number("per_page", PER_PAGE).min(self.largest_page));
        let hostname = query.get("hostname").map(String::as_str).unwrap_or_default();
        let is_asked = |device: &&Device| {
            device.project == project && device.hostname.contains(hostname) && !self.unlisted.contains(&device.id)
        };
        let ids: Vec<String> = self.devices.iter().filter(is_asked).map(|device| device.id.clone()).collect();
        let last = ids.len().div_ceil(per_page).max(1);
        let shown = ids.iter().skip((page - 1) * per_page).take(per_page);
        let devices: Vec<Value> = shown.map(|id| self.value_of(id)).collect();
        let link = |page: usize| json!({"href": format!("{BASE}/projects/{project}/devices?page={page}")});
        let mut meta = json!({
            "first": link(1), "last": link(last), "self": link(page), "total": ids.len(), "current_page": page, "last_page": last,
        });
        if page < last {
            meta["next"] = link(page + 1);
        }
        if let Some(id) = self.vanishes.take() {
            self.take(&id);
        }
        self.fitting("DeviceList", json!({"devices": devices, "meta": meta}))
    }

    fn get(&mut self, id: &str) -> Reply {
        if self.hidden.contains(id) {
            return self.error(403, "You are not authorized to view this device");
        }
        if self.devices.iter().any(|device| device.id == id) { self.shown(id) } else { self.not_found() }
    }

    fn delete(&mut self, id: &str) -> Reply {
        let lingers = self.lingers;
        let Some(device) = self.devices.iter_mut().find(|device| device.id == id) else { return self.not_found() };
        if device.is_locked {
            return self.error(422, "Cannot delete a locked device");
        }
        if device.state == "provisioning" {
            return self.error(422, "Cannot delete a device while it is provisioning");
        }
        (device.state, device.lingers) = ("deprovisioning", lingers);
        if lingers == 0 {
            self.take(id);
        }
        Reply { status: 204, body: String::new() }
    }

    fn update(&mut self, id: &str, body: &Value) -> Reply {
        let Some(device) = self.devices.iter_mut().find(|device| device.id == id) else { return self.not_found() };
        if let Some(tags) = body["tags"].as_array() {
            device.tags = tags.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        self.shown(id)
    }

    fn not_found(&self) -> Reply {
        self.error(404, "Not found")
    }

    fn shown(&mut self, id: &str) -> Reply {
        let value = self.value_of(id);
        self.fitting("Device", value)
    }

    /// A device in the form of the API. Each look at a deleted one brings its end nearer.
    fn value_of(&mut self, id: &str) -> Value {
        let device = self.device(id);
        let (high, low) = ((device.number >> 8) & 255, device.number & 255);
        let address = |text: String, family: u8, is_public: bool| {
            json!({
                "id": format!("{}-3333-4000-8000-000000000000", &device.id[..8]), "address": text, "address_family": family,
                "public": is_public, "management": true, "cidr": 31, "type": "IPAssignment",
                "assigned_to": {"href": format!("{BASE}/devices/{}", device.id)},
            })
        };
        let mut value = json!({
            "id": device.id, "short_id": &device.id[..8], "hostname": device.hostname, "state": device.state,
            "tags": device.tags, "locked": device.is_locked, "billing_cycle": device.order["billing_cycle"],
            "href": format!("{BASE}/devices/{}", device.id), "created_at": "2026-06-01T00:00:00Z",
            "metro": {"id": "0f1bdeea-3dfb-46c8-a4b4-1ee4cb5d8b7c", "name": "New York", "code": device.metro, "country": "US"},
            "plan": {"id": "e69c0169-4726-46ea-98f1-939c9e8a3607", "slug": device.plan, "name": device.plan},
            "project": {"href": format!("{BASE}/projects/{}", device.project)},
            "operating_system": {"slug": device.order["operating_system"]}, "userdata": device.order["userdata"],
            "ip_addresses": [
                address(format!("147.75.{high}.{low}"), 4, true), address(format!("2604:1380:4641::{low:x}"), 6, true),
                address(format!("10.99.{high}.{low}"), 4, false),
            ],
        });
        if let Some(reservation) = &device.reservation {
            value["hardware_reservation"] = json!({"href": format!("{BASE}/hardware-reservations/{reservation}")});
        }
        if device.state == "deprovisioning" {
            device.lingers = device.lingers.saturating_sub(1);
            if device.lingers == 0 {
                self.take(id);
            }
        }
        value
    }

    fn resource(&self, kind: &'static str, id: &str) -> Reply {
        if self.absent.contains(&kind) || ![PROJECT, SSH_KEY].contains(&id) && !self.reservations.contains_key(id) {
            return self.not_found();
        }
        match kind {
            "project" => self.fitting("Project", json!({"id": id, "name": "team"})),
            "key" => self.fitting("SSHKey", json!({"id": id, "label": "operators"})),
            _ => self.fitting("HardwareReservation", json!({"id": id, "provisionable": self.reservations[id]})),
        }
    }

    fn metros(&self) -> Reply {
        let code = if self.absent.contains(&"metro") { "da" } else { METRO };
        self.fitting("MetroList", json!({"metros": [{"code": code, "name": "New York", "country": "US"}]}))
    }

    fn plans(&self) -> Reply {
        let slug = if self.absent.contains(&"plan") { LARGE } else { PLAN };
        self.fitting("PlanList", json!({"plans": [{"slug": slug, "name": slug, "type": "standard"}]}))
    }

    fn systems(&self) -> Reply {
        let slug = if self.absent.contains(&"system") { "debian_12" } else { SYSTEM };
        let plan = if self.absent.contains(&"system on plan") { LARGE } else { PLAN };
        let system = json!({"slug": slug, "name": "Ubuntu 22.04 LTS", "provisionable_on": [plan]});
        self.fitting("OperatingSystemList", json!({"operating_systems": [system]}))
    }

    fn capacity(&self, body: &Value) -> Reply {
        let judged = |server: &Value| {
            let mut server = server.clone();
            let free = self.free.get(server["plan"].as_str().unwrap_or_default()).copied().unwrap_or_default();
            let quantity: usize = server["quantity"].as_str().unwrap_or_default().parse().unwrap();
            server["available"] = (free >= quantity).into();
            server
        };
        let servers: Vec<Value> = body["servers"].as_array().into_iter().flatten().map(judged).collect();
        self.fitting("CapacityCheckPerMetroList", json!({"servers": servers}))
    }

    fn fitting(&self, definition: &str, value: Value) -> Reply {
        self.definitions.check(definition, &value).unwrap();
        Reply { status: 200, body: value.to_string() }
    }

    /// The parameters of a request, which have to fit the operation.
    fn query(&self, operation: &str, request: &Request) -> Result<BTreeMap<String, String>, String> {
        let uri: Uri = format!("/?{}", request.query).parse().map_err(|_| "no query".to_owned())?;
        let Query(query) = Query::<BTreeMap<String, String>>::try_from_uri(&uri).map_err(|error| error.to_string())?;
        for (name, text) in &query {
            let known = &self.queries[operation][name];
            let number = text.parse::<i64>().ok();
            let is_beyond = |limit: &str, is: fn(i64, i64) -> bool| {
                known[limit].as_i64().is_some_and(|limit| number.is_none_or(|number| is(number, limit)))
            };
            if known.is_null() || is_beyond("minimum", |a, b| a < b) || is_beyond("maximum", |a, b| a > b) {
                return Err(format!("{name}={text} is not a parameter of {operation}"));
            }
        }
        Ok(query)
    }

    /// The body of a request, which has to fit its definition.
    fn body(&self, definition: &str, request: &Request) -> Result<Value, String> {
        let value = serde_json::from_str(&request.body).map_err(|error| error.to_string())?;
        self.definitions.check(definition, &value)?;
        Ok(value)
    }

    fn checked(&self, request: &Request) -> Result<(BTreeMap<String, String>, Value), String> {
        let (operation, definition) = match self.call(request) {
            "device.create" => ("createDevice", Some("DeviceCreateInMetroInput")),
            "device.list" => ("findProjectDevices", None),
            "device.get" => ("findDeviceById", None),
            "device.update" => ("updateDevice", Some("DeviceUpdateInput")),
            "device.delete" => ("deleteDevice", None),
            "capacity.check" => ("checkCapacityForMetro", Some("CapacityInput")),
            "project.get" => ("findProjectById", None),
            "plan.list" => ("findPlansByProject", None),
            "system.list" => ("findOperatingSystems", None),
            "metro.list" => ("findMetros", None),
            "key.get" => ("findSSHKeyById", None),
            "reservation.get" => ("findHardwareReservationById", None),
            _ => return Err(format!("{} {}", request.method, request.path)),
        };
        let body = definition.map_or(Ok(Value::Null), |definition| self.body(definition, request))?;
        Ok((self.query(operation, request)?, body))
    }
}

impl FakeCloud for MetalApi {
    fn call(&self, request: &Request) -> &'static str {
        let path = request.path.strip_prefix(BASE).unwrap_or_default();
        match (request.method.as_str(), path.split('/').skip(1).collect::<Vec<_>>().as_slice()) {
            ("POST", ["projects", _, "devices"]) => "device.create",
            ("GET", ["projects", _, "devices"]) => "device.list",
            ("GET", ["devices", _]) => "device.get",
            ("PUT", ["devices", _]) => "device.update",
            ("DELETE", ["devices", _]) => "device.delete",
            ("POST", ["capacity", "metros"]) => "capacity.check",
            ("GET", ["projects", _]) => "project.get",
            ("GET", ["projects", _, "plans"]) => "plan.list",
            ("GET", ["operating-systems"]) => "system.list",
            ("GET", ["locations", "metros"]) => "metro.list",
            ("GET", ["ssh-keys", _]) => "key.get",
            ("GET", ["hardware-reservations", _]) => "reservation.get",
            _ => "unknown",
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        if request.headers.get("x-auth-token").map(String::as_str) != Some(TOKEN) {
            return self.error(401, "Invalid authentication token");
        }
        let (query, body) = match self.checked(request) {
            Ok(checked) => checked,
            Err(problem) => {
                let reply = self.error(422, &problem);
                self.violations.push(problem);
                return reply;
            }
        };
        // `/metal/v1/<kind>/<id>`
        let id = request.path.split('/').nth(4).unwrap_or_default().to_owned();
        match self.call(request) {
            "device.create" => self.create(&id, body),
            "device.list" => self.list(&id, &query),
            "device.get" => self.get(&id),
            "device.update" => self.update(&id, &body),
            "device.delete" => self.delete(&id),
            "capacity.check" => self.capacity(&body),
            "project.get" => self.resource("project", &id),
            "key.get" => self.resource("key", &id),
            "reservation.get" => self.resource("reservation", &id),
            "plan.list" => self.plans(),
            "system.list" => self.systems(),
            _ => self.metros(),
        }
    }
}
