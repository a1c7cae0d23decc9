//! Octavia, as far as pools and their members go. States, checks and texts of errors follow Octavia 19.0.0.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{PROJECT_ID, Reply, Request, SUBNET_ID, empty, parts_of, query_of, text};

/// The only pool.
pub const POOL_ID: &str = "00000000-0000-4000-8000-0000000000f1";

/// A member of the pool.
#[derive(Clone, Debug)]
pub struct Member {
    pub id: String,
    pub name: String,
    pub address: String,
    pub port: u16,
    pub subnet: Option<String>,
    pub status: String,
}

/// A change that was carried out, with the ID of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Added(String),
    Removed(String),
    /// The server was deleted, or its deletion began.
    Deleted(String),
}

/// A pool with its members.
pub struct Octavia {
    /// There is a pool.
    pub has_pool: bool,
    pub members: BTreeMap<String, Member>,
    /// The status of the load balancer and of its pool.
    pub status: String,
    /// When the last change began; in the future, so that no change lasts too long by itself.
    pub changed: String,
    /// Lists of members until a change is carried out.
    pub takes: usize,
    /// Changes of members fail: the member is in error, and the load balancer takes the next change.
    pub breaks: bool,
    /// The load balancer stays as it is.
    pub is_held: bool,
    /// The project may have so many members.
    pub quota: usize,
    /// Pages have at most so many members.
    pub page: usize,
    /// In their order.
    pub changes: Vec<Changed>,
    looks: usize,
    number: u32,
}

impl Member {
    /// The ID of the server, in a name that mcm gave.
    pub fn server(&self) -> Option<&str> {
        self.name.strip_prefix("mcm-")?.get(..36)
    }
}

impl Octavia {
    /// The load balancer that sends to the pool.
    pub const BALANCER_ID: &str = "00000000-0000-4000-8000-0000000000f2";

    pub fn new() -> Self {
        Self {
            has_pool: true,
            members: BTreeMap::new(),
            status: "ACTIVE".to_owned(),
            changed: "2999-01-01T00:00:00".to_owned(),
            takes: 0,
            breaks: false,
            is_held: false,
            quota: 100,
            page: 1000,
            changes: Vec::new(),
            looks: 0,
            number: 0,
        }
    }

    /// Adds a member behind the back of mcm; returns its ID.
    pub fn put(&mut self, name: &str, address: &str, port: u16, subnet: Option<&str>) -> String {
        self.number += 1;
        let id = format!("{:08x}-0000-4000-8000-0000000000f3", self.number);
        let (name, address, subnet) = (name.to_owned(), address.to_owned(), subnet.map(str::to_owned));
        let member = Member { id: id.clone(), name, address, port, subnet, status: "ACTIVE".to_owned() };
        self.members.insert(id.clone(), member);
        id
    }

    /// `10.250.0.5:6443`, for each member that exists or is being added.
    pub fn addresses(&self) -> Vec<String> {
        let left = self.members.values().filter(|member| member.status != "PENDING_DELETE");
        left.map(|member| format!("{}:{}", member.address, member.port)).collect()
    }

    pub(super) fn call(request: &Request) -> &'static str {
        match (request.method.as_str(), parts_of(request).as_slice()) {
            ("GET", [_, "v2.0", "lbaas", "pools", _]) => "pool.get",
            ("GET", [_, "v2.0", "lbaas", "loadbalancers", _]) => "balancer.get",
            ("GET", [_, "v2.0", "lbaas", "pools", _, "members"]) => "member.list",
            ("POST", [_, "v2.0", "lbaas", "pools", _, "members"]) => "member.create",
            ("PUT", [_, "v2.0", "lbaas", "pools", _, "members", _]) => "member.update",
            ("DELETE", [_, "v2.0", "lbaas", "pools", _, "members", _]) => "member.delete",
            _ => "unknown",
        }
    }

    /// The answer, or a request that does not fit the types of Octavia.
    pub(super) fn answer(&mut self, call: &str, request: &Request) -> Result<Reply, String> {
        let parts = parts_of(request);
        let (id, member) = (parts.get(4).copied().unwrap_or_default(), parts.get(6).copied().unwrap_or_default());
        let is_known = self.has_pool && id == if call == "balancer.get" { Self::BALANCER_ID } else { POOL_ID };
        Ok(match call {
            "pool.get" | "balancer.get" if !is_known => octavia(404, &format!("Pool {id} not found.")),
            // Pecan responds before the controller does.
            _ if !is_known => {
                let text = json!({"code": 404, "title": "Bad Request", "description": format!("Pool {id} not found.")});
                Reply { status: 404, body: text.to_string() }
            }
            "pool.get" => {
                self.shown("pool", id, json!({"loadbalancers": [{"id": Self::BALANCER_ID}], "protocol": "TCP"}))
            }
            "balancer.get" => {
                self.shown("loadbalancer", id, json!({"vip_address": "203.0.113.9", "provider": "amphora"}))
            }
            "member.list" => self.list(request),
            "member.create" => self.create(&checked(request, &["address", "protocol_port"], &["name", "subnet_id"])?),
            "member.update" => self.update(member, &checked(request, &[], &["name"])?),
            "member.delete" => self.delete(member),
            _ => Reply { status: 404, body: "404 Not Found".to_owned() },
        })
    }

    fn shown(&self, kind: &str, id: &str, mut value: Value) -> Reply {
        for (key, text) in [("id", id), ("provisioning_status", &self.status), ("updated_at", &self.changed)] {
            value[key] = text.into();
        }
        value["created_at"] = "2026-11-26T20:00:00".into();
        Reply { status: 200, body: json!({kind: value}).to_string() }
    }

    fn list(&mut self, request: &Request) -> Reply {
        self.advance();
        let query = query_of(request);
        let after = query.get("marker").map(String::as_str).unwrap_or_default();
        let mut left = self.members.values().filter(|member| member.id.as_str() > after);
        let members: Vec<Value> = left.by_ref().take(self.page).map(|member| self.member_value(member)).collect();
        let mut page = json!({"members": members, "members_links": []});
        if let (Some(_), Some(last)) = (left.next(), members.last()) {
            let href =
                format!("http://octavia.internal/v2.0/lbaas/pools/{POOL_ID}/members?marker={}", text(last, "id"));
            page["members_links"] = json!([{"rel": "next", "href": href}]);
        }
        Reply { status: 200, body: page.to_string() }
    }

    fn create(&mut self, body: &Map<String, Value>) -> Reply {
        let body = Value::Object(body.clone());
        let (address, port) =
            (text(&body, "address"), body["protocol_port"].as_u64().and_then(|port| port.try_into().ok()));
        let Some(port) = port else { return octavia(400, "Invalid input for field/attribute protocol_port.") };
        let subnet = body["subnet_id"].as_str();
        if let Some(subnet) = subnet.filter(|subnet| *subnet != SUBNET_ID) {
            return octavia(404, &format!("Subnet {subnet} not found."));
        }
        if self.members.len() >= self.quota {
            return octavia(403, "Quota has been met for resources: Member");
        }
        if let Err(reply) = self.begin() {
            return reply;
        }
        if self.members.values().any(|one| one.address == address && one.port == port) {
            self.end();
            let text = format!("Another member on this pool is already using ip {address} on protocol_port {port}");
            return octavia(409, &text);
        }
        let id = self.put(&text(&body, "name"), &address, port, subnet);
        self.set_status(&id, "PENDING_CREATE");
        Reply { status: 201, body: json!({"member": self.member_value(&self.members[&id])}).to_string() }
    }

    fn update(&mut self, id: &str, body: &Map<String, Value>) -> Reply {
        if !self.members.contains_key(id) {
            return octavia(404, &format!("Member {id} not found."));
        }
        if let Err(reply) = self.begin() {
            return reply;
        }
        if let (Some(member), Some(name)) = (self.members.get_mut(id), body["name"].as_str()) {
            member.name = name.to_owned();
        }
        self.set_status(id, "PENDING_UPDATE");
        Reply { status: 200, body: json!({"member": self.member_value(&self.members[id])}).to_string() }
    }

    fn delete(&mut self, id: &str) -> Reply {
        if !self.members.contains_key(id) {
            return octavia(404, &format!("Member {id} not found."));
        }
        if let Err(reply) = self.begin() {
            return reply;
        }
        self.set_status(id, "PENDING_DELETE");
        empty(204)
    }

    /// One change at a time.
    fn begin(&mut self) -> Result<(), Reply> {
        if self.status != "ACTIVE" {
            let text = format!("Load Balancer {} is immutable and cannot be updated.", Self::BALANCER_ID);
            return Err(octavia(409, &text));
        }
        self.status = "PENDING_UPDATE".to_owned();
        self.looks = self.takes;
        Ok(())
    }

    fn advance(&mut self) {
        match self.looks.checked_sub(1) {
            Some(left) => self.looks = left,
            None => self.end(),
        }
    }

    /// The change is carried out.
    fn end(&mut self) {
        if self.is_held || self.status != "PENDING_UPDATE" {
            return;
        }
        let status = if self.breaks { "ERROR" } else { "ACTIVE" };
        self.status = "ACTIVE".to_owned();
        let removed = self.members.extract_if(.., |_, member| member.status == "PENDING_DELETE" && !self.breaks);
        let removed = removed.filter_map(|(_, member)| Some(Changed::Removed(member.server()?.to_owned())));
        self.changes.extend(removed);
        let added = self.members.values().filter(|member| member.status == "PENDING_CREATE");
        self.changes.extend(added.filter_map(|member| Some(Changed::Added(member.server()?.to_owned()))));
        let changed = self.members.values_mut().filter(|member| member.status.starts_with("PENDING"));
        changed.for_each(|member| member.status = status.to_owned());
    }

    fn set_status(&mut self, id: &str, status: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.status = status.to_owned();
        }
    }

    fn member_value(&self, member: &Member) -> Value {
        json!({
            "id": member.id, "name": member.name, "address": member.address, "protocol_port": member.port,
            "subnet_id": member.subnet, "provisioning_status": member.status, "operating_status": "NO_MONITOR",
            "admin_state_up": true, "weight": 1, "backup": false, "project_id": PROJECT_ID, "monitor_port": null,
            "monitor_address": null, "created_at": "2026-11-26T20:00:00", "updated_at": self.changed, "tags": [],
            "vnic_type": "normal",
        })
    }
}

/// The fields of a member in the body of a request.
fn checked(request: &Request, required: &[&str], optional: &[&str]) -> Result<Map<String, Value>, String> {
    let problem = |text: &str| format!("{} {}: {text}: {}", request.method, request.path, request.body);
    let body: Value = serde_json::from_str(&request.body).map_err(|error| problem(&error.to_string()))?;
    let fields = body["member"].as_object().filter(|_| body.as_object().is_some_and(|all| all.len() == 1));
    let fields = fields.ok_or_else(|| problem("no member"))?;
    let is_known = |key: &&String| required.contains(&key.as_str()) || optional.contains(&key.as_str());
    if let Some(other) = fields.keys().find(|key| !is_known(key)) {
        return Err(problem(&format!("unknown attribute {other}")));
    }
    match required.iter().find(|key| !fields.contains_key(**key)) {
        Some(missing) => Err(problem(&format!("no {missing}"))),
        None => Ok(fields.clone()),
    }
}

/// An error of Octavia.
pub fn octavia(status: u16, message: &str) -> Reply {
    let code = if status < 500 { "Client" } else { "Server" };
    Reply { status, body: json!({"faultcode": code, "faultstring": message, "debuginfo": null}).to_string() }
}
