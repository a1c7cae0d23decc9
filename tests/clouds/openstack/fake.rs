//! A fake of OpenStack: Keystone, Nova, Neutron, Cinder and Octavia behind one address. It keeps servers, ports, volumes and members
//! of a pool as the real services do, and refuses every request that does not fit the schemas of their packages.
//!
//! States, filters and texts of errors follow Keystone 30.0.0, Nova 34.0.0, Neutron 29.0.0 and Cinder 29.0.0.

#[path = "octavia.rs"]
mod octavia;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde_json::{Value, json};

pub use self::octavia::{Changed, Octavia, POOL_ID, octavia};
use super::{
    kit::server::{FakeCloud, Reply, Request},
    schema::Schemas,
};

pub const REGION: &str = "RegionOne";
pub const ZONE: &str = "nova";
pub const USER: &str = "machines";
pub const PASSWORD: &str = "password-top-secret";
pub const APPLICATION: &str = "21dced0fd20347869b93710d2b98aae0";
pub const APPLICATION_SECRET: &str = "application-top-secret";
pub const DOMAIN: &str = "shoots";
pub const PROJECT: &str = "team";
pub const PROJECT_ID: &str = "0c4e939acacf4376bdcd1129f1a054ad";
pub const IMAGE: &str = "gardenlinux";
pub const IMAGE_ID: &str = "00000000-0000-4000-8000-0000000000a1";
pub const FLAVOR: &str = "m1.small";
pub const LARGE: &str = "m1.large";
pub const KEY_PAIR: &str = "operator";
pub const NETWORK: &str = "shoot-network";
pub const NETWORK_ID: &str = "00000000-0000-4000-8000-0000000000b1";
pub const SECOND_NETWORK: &str = "storage-network";
pub const SECOND_NETWORK_ID: &str = "00000000-0000-4000-8000-0000000000b2";
pub const SUBNET_ID: &str = "00000000-0000-4000-8000-0000000000c1";
pub const SECOND_SUBNET_ID: &str = "00000000-0000-4000-8000-0000000000c2";
pub const GROUP: &str = "shoot-group";
pub const GROUP_ID: &str = "00000000-0000-4000-8000-0000000000d1";
pub const SERVER_GROUP_ID: &str = "00000000-0000-4000-8000-0000000000e1";
pub const VOLUME_TYPE: &str = "ssd";

/// Flavors by their IDs.
const FLAVORS: [(&str, &str); 2] = [("1", FLAVOR), ("2", LARGE)];

/// A server of Nova.
#[derive(Clone, Debug)]
pub struct Server {
    pub id: String,
    pub name: String,
    pub status: String,
    pub metadata: BTreeMap<String, String>,
    /// ID of its image.
    pub image: String,
    zone: String,
    /// As it was sent, without Base64.
    pub user_data: Vec<u8>,
    pub created: Timestamp,
    task: Option<String>,
    fault: Option<String>,
    has_run: bool,
    /// A volume that it boots from and that stays after it.
    volume: Option<String>,
    /// So many reads show it as it is now.
    looks: usize,
    /// So many lists lack it.
    unlisted: usize,
}

/// A port of Neutron.
#[derive(Clone, Debug)]
pub struct Port {
    pub id: String,
    pub name: String,
    pub network: String,
    pub device: String,
    pub description: String,
    pub tags: Vec<String>,
    pub pairs: Vec<Value>,
    pub groups: Vec<String>,
    pub fixed_ips: Vec<Value>,
    /// Nova created it with its server.
    is_of_nova: bool,
    number: u32,
}

/// A volume of Cinder.
#[derive(Clone, Debug)]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub status: String,
    pub metadata: BTreeMap<String, String>,
    pub size: i64,
    looks: usize,
}

/// The services with what they keep.
pub struct OpenStack {
    schemas: Schemas,
    /// The URL of all services, without a path.
    pub url: String,
    pub servers: BTreeMap<String, Server>,
    pub ports: BTreeMap<String, Port>,
    pub volumes: BTreeMap<String, Volume>,
    pub octavia: Octavia,
    /// IDs of images by their names.
    pub images: BTreeMap<String, String>,
    /// Availability zones.
    pub zones: Vec<String>,
    /// Servers that were ever created.
    pub created: u64,
    /// Requests that do not fit the schemas.
    pub violations: Vec<String>,
    /// The project may have so many servers.
    pub quota: Option<usize>,
    /// Reads of a server until it is built.
    pub builds: usize,
    /// Lists that lack a new server, while Nova moves it into its cell.
    pub unlisted: usize,
    /// Reads of a volume until it is available.
    pub downloads: usize,
    /// Reads of a server until it is deleted.
    pub lingers: usize,
    /// So many deletions fail.
    pub undeleted: usize,
    /// Servers fail to build, for this reason.
    pub fault: Option<String>,
    /// Volumes fail.
    pub breaks_volumes: bool,
    /// Pages have at most so many servers.
    pub page: usize,
    /// Extra specs of each flavor.
    pub flavor_specs: BTreeMap<&'static str, String>,
    /// Resources that are not there.
    pub absent: Vec<&'static str>,
    /// The catalogue lacks these services.
    pub without: Vec<&'static str>,
    /// How long tokens live.
    pub life: SignedDuration,
    tokens: BTreeSet<String>,
    issued: Option<String>,
    number: u32,
}

impl OpenStack {
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// IDs begin there, so that several fakes have different ones.
    pub fn starting_at(number: u32) -> Self {
        Self {
            schemas: Schemas::of(include_str!("api.json")),
            url: String::new(),
            servers: BTreeMap::new(),
            ports: BTreeMap::new(),
            volumes: BTreeMap::new(),
            octavia: Octavia::new(),
            images: [(IMAGE.to_owned(), IMAGE_ID.to_owned())].into(),
            zones: vec![ZONE.to_owned()],
            created: 0,
            violations: Vec::new(),
            quota: None,
            builds: 0,
            unlisted: 0,
            downloads: 0,
            lingers: 0,
            undeleted: 0,
            fault: None,
            breaks_volumes: false,
            page: 1000,
            flavor_specs: BTreeMap::new(),
            absent: Vec::new(),
            without: Vec::new(),
            life: SignedDuration::from_hours(1),
            tokens: BTreeSet::new(),
            issued: None,
            number,
        }
    }

    /// Servers that exist, and are not only shown so.
    pub fn existing(&self) -> Vec<&Server> {
        self.servers.values().filter(|server| server.task.as_deref() != Some("deleting")).collect()
    }

    /// Creates a running server behind the back of mcm; returns its ID.
    pub fn put(&mut self, name: &str, metadata: &[(&str, &str)]) -> String {
        let id = self.next_id();
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let server = Server {
            id: id.clone(),
            name: name.to_owned(),
            status: "ACTIVE".to_owned(),
            metadata,
            image: IMAGE_ID.to_owned(),
            zone: ZONE.to_owned(),
            user_data: Vec::new(),
            created: Timestamp::now(),
            task: None,
            fault: None,
            has_run: true,
            volume: None,
            looks: 0,
            unlisted: 0,
        };
        self.servers.insert(id.clone(), server);
        self.put_port("", NETWORK_ID, &id, "", &[]);
        self.ports.values_mut().filter(|port| port.device == id).for_each(|port| port.is_of_nova = true);
        id
    }

    /// Creates a port behind the back of mcm; returns its ID.
    pub fn put_port(&mut self, name: &str, network: &str, device: &str, description: &str, tags: &[&str]) -> String {
        let id = self.next_id();
        let subnet = if network == NETWORK_ID { SUBNET_ID } else { SECOND_SUBNET_ID };
        let port = Port {
            id: id.clone(),
            name: name.to_owned(),
            network: network.to_owned(),
            device: device.to_owned(),
            description: description.to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            pairs: Vec::new(),
            groups: Vec::new(),
            fixed_ips: vec![json!({"subnet_id": subnet, "ip_address": address_of(self.number)})],
            is_of_nova: false,
            number: self.number,
        };
        self.ports.insert(id.clone(), port);
        id
    }

    /// Creates a volume behind the back of mcm; returns its ID.
    pub fn put_volume(&mut self, name: &str, status: &str, metadata: &[(&str, &str)]) -> String {
        let id = self.next_id();
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (name, status) = (name.to_owned(), status.to_owned());
        let volume = Volume { id: id.clone(), name, status, metadata, size: 1, looks: 0 };
        self.volumes.insert(id.clone(), volume);
        id
    }

    /// No list has a server any more.
    pub fn unlist(&mut self, id: &str) {
        self.servers.get_mut(id).unwrap().unlisted = usize::MAX;
    }

    /// Ends a server behind the back of mcm.
    pub fn take(&mut self, id: &str) {
        let Some(server) = self.servers.remove(id) else { return };
        self.ports.retain(|_, port| port.device != id || !port.is_of_nova);
        self.ports.values_mut().filter(|port| port.device == id).for_each(|port| port.device.clear());
        if let Some(volume) = server.volume.and_then(|id| self.volumes.get_mut(&id)) {
            volume.status = "available".to_owned();
        }
    }

    /// No token is accepted any more.
    pub fn revoke_tokens(&mut self) {
        self.tokens.clear();
    }

    fn next_id(&mut self) -> String {
        self.number += 1;
        format!("{:08x}-0000-4000-8000-000000000000", self.number)
    }

    /// An image with this ID exists.
    fn has_image(&self, id: &str) -> bool {
        self.images.values().any(|known| known == id) && self.has("image")
    }

    /// A resource of this kind exists.
    fn has(&self, kind: &str) -> bool {
        !self.absent.contains(&kind)
    }

    /// Reads the body of a request, which has to fit its schema.
    fn body(&mut self, schema: &str, request: &Request) -> Result<Value, Reply> {
        let checked = match serde_json::from_str(&request.body) {
            Ok(value) => self.schemas.check(schema, &value).map(|()| value),
            Err(error) => Err(error.to_string()),
        };
        checked.map_err(|problem| {
            self.violations.push(format!("{schema}: {problem}"));
            nova(400, "badRequest", &format!("Invalid input for field/attribute: {problem}"))
        })
    }

    fn shown(&self, schema: &str, value: Value) -> Reply {
        self.schemas.check(schema, &value).unwrap();
        Reply { status: 200, body: value.to_string() }
    }
}

/// Keystone.
impl OpenStack {
    fn token(&mut self, request: &Request) -> Reply {
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let body = body["auth"].clone();
        if let Err(problem) = self.schemas.check("auth", &body) {
            self.violations.push(format!("auth: {problem}"));
            return keystone(400, &problem);
        }
        if !is_authentic(&body) {
            return keystone(401, "The request you have made requires authentication.");
        }
        let expires = Timestamp::now().checked_add(self.life).unwrap();
        let services = [
            ("compute", "compute/v2.1".to_owned()),
            ("network", "network".to_owned()),
            ("volumev3", format!("volume/v3/{PROJECT_ID}")),
            ("load-balancer", "load-balancer".to_owned()),
            ("identity", "identity".to_owned()),
        ];
        let catalog = services.iter().filter(|(kind, _)| !self.without.contains(kind));
        let catalog = catalog.map(|(kind, path)| {
            let endpoint = |interface: &str| {
                json!({"id": "e", "interface": interface, "region": REGION, "region_id": REGION, "url": format!("{}/{path}", self.url)})
            };
            json!({"id": "s", "type": kind, "name": kind, "endpoints": [endpoint("internal"), endpoint("public")]})
        });
        let domain = json!({"id": "d", "name": DOMAIN});
        let token = json!({
            "methods": body["identity"]["methods"], "expires_at": format!("{expires:.6}"), "catalog": catalog.collect::<Vec<_>>(),
            "user": {"id": "u", "name": USER, "domain": domain, "password_expires_at": null},
            "project": {"id": PROJECT_ID, "name": PROJECT, "domain": domain}, "roles": [{"id": "r", "name": "member"}],
            "issued_at": format!("{:.6}", Timestamp::now()), "audit_ids": ["a"],
        });
        self.number += 1;
        let issued = format!("gAAAAAB-token-{}", self.number);
        self.tokens.insert(issued.clone());
        self.issued = Some(issued);
        Reply { status: 201, body: json!({"token": token}).to_string() }
    }
}

fn is_authentic(auth: &Value) -> bool {
    let identity = &auth["identity"];
    let domain = json!({"name": DOMAIN});
    if identity["methods"] == json!(["password"]) {
        let user = &identity["password"]["user"];
        let project = &auth["scope"]["project"];
        let by_name = project["name"] == PROJECT && project["domain"] == domain;
        return user["name"] == USER
            && user["password"] == PASSWORD
            && user["domain"] == domain
            && (by_name || project["id"] == PROJECT_ID);
    }
    let application = &identity["application_credential"];
    identity["methods"] == json!(["application_credential"])
        && application["id"] == APPLICATION
        && application["secret"] == APPLICATION_SECRET
        && auth.get("scope").is_none()
}

/// Nova.
impl OpenStack {
    fn create_server(&mut self, request: &Request) -> Reply {
        let body = match self.body("server.create", request) {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        let server = &body["server"];
        if let Err(problem) = self.check_order(&body) {
            return nova(400, "badRequest", &problem);
        }
        if self.quota.is_some_and(|quota| self.servers.len() >= quota) {
            let (used, quota) = (self.servers.len(), self.quota.unwrap_or_default());
            let text =
                format!("Quota exceeded for instances: Requested 1, but already used {used} of {quota} instances");
            return nova(403, "forbidden", &text);
        }
        let id = self.next_id();
        self.created += 1;
        let metadata = server["metadata"].as_object().into_iter().flatten();
        let metadata = metadata.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
        let disk = &server["block_device_mapping_v2"][0];
        let volume = (disk["source_type"] == "volume").then(|| text(disk, "uuid"));
        if let Some(volume) = volume.as_ref().and_then(|id| self.volumes.get_mut(id)) {
            volume.status = "in-use".to_owned();
        }
        let made = Server {
            id: id.clone(),
            name: text(server, "name"),
            status: "BUILD".to_owned(),
            metadata,
            image: text(server, "imageRef"),
            zone: text(server, "availability_zone"),
            user_data: BASE64_STANDARD.decode(text(server, "user_data")).unwrap(),
            created: Timestamp::now(),
            task: Some("scheduling".to_owned()),
            fault: None,
            has_run: false,
            volume,
            looks: self.builds,
            unlisted: self.unlisted,
        };
        self.servers.insert(id.clone(), made);
        for network in server["networks"].as_array().into_iter().flatten() {
            match network["port"].as_str() {
                Some(port) => self.ports.get_mut(port).unwrap().device.clone_from(&id),
                None => {
                    let port = self.put_port("", &text(network, "uuid"), &id, "", &[]);
                    self.ports.get_mut(&port).unwrap().is_of_nova = true;
                }
            }
        }
        let links = links_of("servers", &id);
        let created = json!({"server": {
            "OS-DCF:diskConfig": "MANUAL", "adminPass": "x", "id": id, "links": links, "security_groups": [{"name": GROUP}],
        }});
        let reply = self.shown("server.created", created);
        Reply { status: 202, ..reply }
    }

    /// The checks that Nova makes before its response.
    fn check_order(&self, body: &Value) -> Result<(), String> {
        let server = &body["server"];
        if !self.has_image(&text(server, "imageRef")) {
            return Err(format!("Can not find requested image {}", server["imageRef"]));
        }
        if !FLAVORS.iter().any(|(id, _)| server["flavorRef"] == *id) {
            return Err(format!("Flavor {} could not be found.", server["flavorRef"]));
        }
        if server["key_name"] != KEY_PAIR || !self.has("keypair") {
            return Err("Invalid key_name provided.".to_owned());
        }
        if !self.zones.contains(&text(server, "availability_zone")) || !self.has("zone") {
            return Err("The requested availability zone is not available".to_owned());
        }
        for group in server["security_groups"].as_array().into_iter().flatten() {
            if group["name"] != GROUP || !self.has("group") {
                return Err(format!("Security group {} not found for project.", group["name"]));
            }
        }
        let group = &body["os:scheduler_hints"]["group"];
        if !group.is_null() && group != SERVER_GROUP_ID {
            return Err(format!("Instance group {group} could not be found."));
        }
        let disk = &server["block_device_mapping_v2"][0];
        if disk["source_type"] == "volume" {
            let volume = self.volumes.get(&text(disk, "uuid"));
            if volume.is_none_or(|volume| volume.status != "available") {
                return Err("Block Device Mapping is Invalid: failed to get volume.".to_owned());
            }
        }
        for network in server["networks"].as_array().into_iter().flatten() {
            if ![NETWORK_ID, SECOND_NETWORK_ID].contains(&text(network, "uuid").as_str()) {
                return Err(format!("Network {} could not be found.", network["uuid"]));
            }
            let port = network["port"].as_str();
            if port.is_some_and(|port| self.ports.get(port).is_none_or(|port| !port.device.is_empty())) {
                return Err(format!("Port {} is still in use or could not be found.", network["port"]));
            }
        }
        Ok(())
    }

    /// Builds or deletes a server between two reads.
    fn advance_server(&mut self, id: &str) {
        let fault = self.fault.clone();
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.looks > 0 {
            server.looks -= 1;
            return;
        }
        if server.task.as_deref() == Some("deleting") && self.undeleted > 0 {
            self.undeleted -= 1;
            (server.task, server.status) = (None, "ERROR".to_owned());
            server.fault = Some("Timeout while waiting on RPC response - topic: cinder-volume".to_owned());
        } else if server.task.as_deref() == Some("deleting") {
            self.take(id);
        } else if server.status == "BUILD" {
            server.task = None;
            server.has_run = fault.is_none();
            server.status = if fault.is_none() { "ACTIVE" } else { "ERROR" }.to_owned();
            server.fault = fault;
        }
    }

    fn server_value(&self, server: &Server) -> Value {
        let addresses = self.ports.values().filter(|port| port.device == server.id && server.has_run).map(|port| {
            let name = if port.network == NETWORK_ID { NETWORK } else { SECOND_NETWORK };
            let address = address_of(port.number);
            let address = json!([{
                "addr": address, "version": 4, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01",
            }]);
            (name.to_owned(), address)
        });
        let created = format!("{:.0}", server.created);
        let launched = server.has_run.then(|| created.trim_end_matches('Z').to_owned() + ".000000");
        let mut value = json!({
            "id": server.id, "name": server.name, "status": server.status, "metadata": server.metadata, "created": created,
            "updated": created, "addresses": addresses.collect::<BTreeMap<_, _>>(), "accessIPv4": "", "accessIPv6": "",
            "config_drive": "", "flavor": {"id": "1", "links": links_of("flavors", "1")[1..]}, "hostId": "",
            "image": {"id": server.image, "links": links_of("images", &server.image)[1..]}, "key_name": KEY_PAIR,
            "links": links_of("servers", &server.id), "os-extended-volumes:volumes_attached": [], "tenant_id": PROJECT_ID,
            "user_id": "0c4e939acacf4376bdcd1129f1a054ae", "OS-DCF:diskConfig": "MANUAL", "OS-EXT-AZ:availability_zone": server.zone,
            "OS-EXT-STS:power_state": if server.has_run { 1 } else { 0 }, "OS-EXT-STS:task_state": server.task,
            "OS-EXT-STS:vm_state": server.status.to_lowercase(), "OS-SRV-USG:launched_at": launched,
            "OS-SRV-USG:terminated_at": null,
        });
        if let Some(fault) = &server.fault {
            value["fault"] = json!({"code": 500, "created": created, "message": fault});
        } else if server.status == "ACTIVE" || server.status == "BUILD" {
            value["progress"] = 0.into();
        }
        if server.status != "ERROR" {
            value["security_groups"] = json!([{"name": GROUP}]);
        }
        value
    }

    fn get_server(&mut self, id: &str) -> Reply {
        self.advance_server(id);
        match self.servers.get(id) {
            Some(server) => self.shown("server.shown", json!({"server": self.server_value(server)})),
            None => nova(404, "itemNotFound", &format!("Instance {id} could not be found.")),
        }
    }

    fn list_servers(&mut self, request: &Request) -> Reply {
        let query = query_of(request);
        if let Some(unknown) = query.keys().find(|key| !["name", "limit", "marker"].contains(&key.as_str())) {
            self.violations.push(format!("servers: parameter {unknown}"));
        }
        let ids: Vec<String> = self.servers.keys().cloned().collect();
        ids.iter().for_each(|id| self.advance_server(id));
        let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX).min(self.page);
        let named = |server: &&Server| query.get("name").is_none_or(|pattern| is_match(pattern, &server.name));
        let marker = query.get("marker").map(String::as_str).unwrap_or_default();
        let is_listed = |server: &&Server| server.unlisted == 0 && server.id.as_str() > marker;
        let mut left = self.servers.values().filter(named).filter(is_listed);
        let page: Vec<&Server> = left.by_ref().take(limit).collect();
        let mut body = json!({"servers": page.iter().map(|server| self.server_value(server)).collect::<Vec<_>>()});
        if let Some(last) = page.last().filter(|_| page.len() == limit) {
            // The name of the host that Nova thinks it has.
            let href = format!("http://nova.internal/v2.1/servers/detail?limit={limit}&marker={}", last.id);
            body["servers_links"] = json!([{"rel": "next", "href": href}]);
        }
        self.servers.values_mut().for_each(|server| server.unlisted = server.unlisted.saturating_sub(1));
        self.shown("server.listed", body)
    }

    fn delete_server(&mut self, id: &str) -> Reply {
        let lingers = self.lingers;
        let Some(server) = self.servers.get_mut(id) else {
            return nova(404, "itemNotFound", &format!("Instance {id} could not be found."));
        };
        if lingers == 0 {
            self.take(id);
        } else {
            server.task = Some("deleting".to_owned());
            server.looks = lingers;
        }
        self.octavia.changes.push(Changed::Deleted(id.to_owned()));
        empty(204)
    }

    fn set_metadata(&mut self, id: &str, request: &Request) -> Reply {
        let body = match self.body("metadata.create", request) {
            Ok(body) => body,
            Err(reply) => return reply,
        };
        let Some(server) = self.servers.get_mut(id) else {
            return nova(404, "itemNotFound", &format!("Instance {id} could not be found."));
        };
        for (key, value) in body["metadata"].as_object().unwrap() {
            server.metadata.insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        let metadata = json!({"metadata": server.metadata});
        self.shown("metadata.created", metadata)
    }

    fn delete_metadata(&mut self, id: &str, key: &str) -> Reply {
        match self.servers.get_mut(id).and_then(|server| server.metadata.remove(key)) {
            Some(_) => empty(204),
            None => nova(404, "itemNotFound", "Metadata item was not found"),
        }
    }

    fn flavors(&self) -> Reply {
        let flavors = FLAVORS.iter().filter(|(_, name)| self.has(name));
        let flavors = flavors.map(|(id, name)| json!({"id": id, "name": name, "links": links_of("flavors", id)}));
        self.shown("flavors", json!({"flavors": flavors.collect::<Vec<_>>()}))
    }

    fn flavor(&self, id: &str) -> Reply {
        let Some((_, name)) = FLAVORS.iter().find(|(one, _)| *one == id) else {
            return nova(404, "itemNotFound", &format!("Flavor {id} could not be found."));
        };
        // As Nova shows it without a microversion.
        let flavor = json!({
            "id": id, "name": name, "vcpus": 4, "ram": 8192, "disk": 20, "swap": "", "rxtx_factor": 1.0,
            "OS-FLV-EXT-DATA:ephemeral": 0, "OS-FLV-DISABLED:disabled": false, "os-flavor-access:is_public": true,
            "links": links_of("flavors", id),
        });
        Reply { status: 200, body: json!({"flavor": flavor}).to_string() }
    }

    fn flavor_specs(&self, id: &str) -> Reply {
        match FLAVORS.iter().any(|(one, _)| *one == id) {
            true => Reply { status: 200, body: json!({"extra_specs": self.flavor_specs}).to_string() },
            false => nova(404, "itemNotFound", &format!("Flavor {id} could not be found.")),
        }
    }

    fn images(&self, request: &Request) -> Reply {
        let query = query_of(request);
        let is_asked = |name: &str| query.get("name").is_none_or(|wanted| wanted == name) && self.has("image");
        let found = self.images.iter().filter(|(name, _)| is_asked(name)).map(|(name, id)| {
            let mut links = links_of("images", id).to_vec();
            links.push(json!({"rel": "alternate", "type": "application/vnd.openstack.image", "href": "http://glance.internal/images/1"}));
            json!({"id": id, "name": name, "links": links})
        });
        self.shown("images", json!({"images": found.collect::<Vec<_>>()}))
    }

    fn limits(&self) -> Reply {
        let most = self.quota.map_or(-1, |quota| quota as i64);
        let absolute = json!({"maxTotalInstances": most, "totalInstancesUsed": self.servers.len()});
        Reply { status: 200, body: json!({"limits": {"absolute": absolute, "rate": []}}).to_string() }
    }

    fn zones(&self) -> Reply {
        let zone =
            |name: &String| json!({"zoneName": name, "zoneState": {"available": self.has("zone")}, "hosts": null});
        let zones: Vec<Value> = self.zones.iter().map(zone).collect();
        Reply { status: 200, body: json!({"availabilityZoneInfo": zones}).to_string() }
    }

    /// A resource of Nova of which only the existence counts.
    fn of_nova(&self, field: &str, kind: &str, is_known: bool) -> Reply {
        match is_known && self.has(kind) {
            true => Reply { status: 200, body: json!({field: {"name": kind}}).to_string() },
            false => nova(404, "itemNotFound", &format!("{kind} could not be found.")),
        }
    }
}

/// Neutron.
impl OpenStack {
    fn create_port(&mut self, request: &Request) -> Reply {
        let body = match self.body("port.create", request) {
            Ok(body) => body["port"].clone(),
            Err(reply) => return reply,
        };
        if body["network_id"] != NETWORK_ID || !self.has("network") {
            return neutron(404, "NetworkNotFound", "Network could not be found.");
        }
        let list = |name: &str| body[name].as_array().cloned().unwrap_or_default();
        let (fixed_ips, groups) = (list("fixed_ips"), list("security_groups"));
        if fixed_ips.iter().any(|ip| ip["subnet_id"] != SUBNET_ID) || !self.has("subnet") {
            return neutron(400, "InvalidInput", "Failed to create port on network: subnet could not be found.");
        }
        if groups.iter().any(|group| group != GROUP_ID) {
            return neutron(404, "SecurityGroupNotFound", "Security group does not exist");
        }
        let id = self.put_port(&text(&body, "name"), NETWORK_ID, "", &text(&body, "description"), &[]);
        let port = self.ports.get_mut(&id).unwrap();
        port.groups = groups.iter().filter_map(|group| group.as_str().map(str::to_owned)).collect();
        port.pairs = with_addresses(&list("allowed_address_pairs"));
        let value = json!({"port": port_value(port)});
        Reply { status: 201, body: value.to_string() }
    }

    fn update_port(&mut self, id: &str, request: &Request) -> Reply {
        let body = match self.body("port.update", request) {
            Ok(body) => body["port"].clone(),
            Err(reply) => return reply,
        };
        let Some(port) = self.ports.get_mut(id) else {
            return neutron(404, "PortNotFound", "Port could not be found.");
        };
        if let Some(pairs) = body["allowed_address_pairs"].as_array() {
            port.pairs = with_addresses(pairs);
        }
        Reply { status: 200, body: json!({"port": port_value(port)}).to_string() }
    }

    fn tag_port(&mut self, id: &str, request: &Request) -> Reply {
        let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        let tags = body["tags"].as_array().filter(|_| body.as_object().is_some_and(|fields| fields.len() == 1));
        let Some(tags) = tags else {
            self.violations.push(format!("tags: {body}"));
            return neutron(400, "HTTPBadRequest", "Invalid tags body");
        };
        let tags: Vec<String> = tags.iter().filter_map(|tag| tag.as_str().map(str::to_owned)).collect();
        let Some(port) = self.ports.get_mut(id) else {
            return neutron(404, "PortNotFound", "Port could not be found.");
        };
        port.tags.clone_from(&tags);
        Reply { status: 200, body: json!({"tags": tags}).to_string() }
    }

    fn list_ports(&self, request: &Request) -> Reply {
        let query = query_of(request);
        let is_asked = |port: &&Port| {
            query.iter().all(|(key, value)| match key.as_str() {
                "name" => port.name == *value,
                "device_id" => port.device == *value,
                other => panic!("the fake has no filter {other} of ports"),
            })
        };
        let ports: Vec<Value> = self.ports.values().filter(is_asked).map(port_value).collect();
        Reply { status: 200, body: json!({"ports": ports}).to_string() }
    }

    fn delete_port(&mut self, id: &str) -> Reply {
        match self.ports.remove(id) {
            Some(_) => empty(204),
            None => neutron(404, "PortNotFound", "Port could not be found."),
        }
    }

    /// Resources of Neutron with a name: `all` are their names and IDs.
    fn named(&self, field: &str, kind: &str, all: &[(&str, &str)], request: &Request) -> Reply {
        let query = query_of(request);
        let is_asked = |name: &str| query.get("name").is_none_or(|wanted| wanted == name) && self.has(kind);
        let found = all.iter().filter(|(name, _)| is_asked(name)).map(|(name, id)| json!({"id": id, "name": name}));
        Reply { status: 200, body: json!({field: found.collect::<Vec<_>>()}).to_string() }
    }

    fn of_neutron(&self, field: &str, id: &str, known: &[&str]) -> Reply {
        match known.contains(&id) && self.has(field) {
            true => Reply { status: 200, body: json!({field: {"id": id}}).to_string() },
            false => neutron(404, "NotFound", &format!("{field} {id} could not be found.")),
        }
    }
}

/// The address of a port.
fn address_of(number: u32) -> String {
    format!("10.0.{}.{}", number >> 8 & 255, number & 255)
}

fn with_addresses(pairs: &[Value]) -> Vec<Value> {
    let with = |pair: &Value| {
        let mac = pair["mac_address"].as_str().unwrap_or("fa:16:3e:00:00:01");
        json!({"ip_address": pair["ip_address"], "mac_address": mac})
    };
    pairs.iter().map(with).collect()
}

fn port_value(port: &Port) -> Value {
    json!({
        "id": port.id, "name": port.name, "network_id": port.network, "tenant_id": PROJECT_ID, "project_id": PROJECT_ID,
        "mac_address": "fa:16:3e:00:00:01", "admin_state_up": true, "status": "ACTIVE", "device_id": port.device,
        "device_owner": "", "fixed_ips": port.fixed_ips, "security_groups": port.groups, "tags": port.tags,
        "allowed_address_pairs": port.pairs, "description": port.description, "port_security_enabled": true,
        "created_at": "2026-11-26T21:00:00Z", "updated_at": "2026-11-26T21:00:00Z", "revision_number": 1,
    })
}

/// Cinder.
impl OpenStack {
    fn create_volume(&mut self, request: &Request) -> Reply {
        let body = match self.body("volume.create", request) {
            Ok(body) => body["volume"].clone(),
            Err(reply) => return reply,
        };
        if !body["volume_type"].is_null() && (body["volume_type"] != VOLUME_TYPE || !self.has("type")) {
            return nova(404, "itemNotFound", "Volume type could not be found.");
        }
        if !self.has_image(&text(&body, "imageRef")) {
            return nova(400, "badRequest", "Invalid image identifier or unable to access requested image.");
        }
        let metadata = body["metadata"].as_object().into_iter().flatten();
        let metadata: Vec<(&str, &str)> =
            metadata.map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
        let id = self.put_volume(&text(&body, "name"), "creating", &metadata);
        let looks = self.downloads;
        let volume = self.volumes.get_mut(&id).unwrap();
        volume.looks = looks;
        volume.size = body["size"].as_i64().unwrap_or_default();
        let value = json!({"volume": volume_value(volume, None)});
        Reply { status: 202, body: value.to_string() }
    }

    fn advance_volume(&mut self, id: &str) {
        let ends = if self.breaks_volumes { "error" } else { "available" };
        let Some(volume) = self.volumes.get_mut(id) else { return };
        if volume.looks > 0 {
            volume.looks -= 1;
        } else if volume.status == "creating" {
            volume.status = ends.to_owned();
        }
    }

    fn get_volume(&mut self, id: &str) -> Reply {
        self.advance_volume(id);
        match self.volumes.get(id) {
            Some(volume) => {
                let value = volume_value(volume, self.server_of(volume));
                Reply { status: 200, body: json!({"volume": value}).to_string() }
            }
            None => nova(404, "itemNotFound", &format!("Volume {id} could not be found.")),
        }
    }

    fn list_volumes(&mut self, request: &Request) -> Reply {
        let name = query_of(request).get("name").cloned().unwrap_or_default();
        let ids: Vec<String> = self.volumes.keys().cloned().collect();
        ids.iter().for_each(|id| self.advance_volume(id));
        let found = self.volumes.values().filter(|volume| volume.name == name);
        let found: Vec<Value> = found.map(|volume| volume_value(volume, self.server_of(volume))).collect();
        Reply { status: 200, body: json!({"volumes": found}).to_string() }
    }

    /// The server that has a volume.
    fn server_of(&self, volume: &Volume) -> Option<&str> {
        let has = |server: &&Server| server.volume.as_ref() == Some(&volume.id);
        self.servers.values().find(has).map(|server| server.id.as_str())
    }

    fn delete_volume(&mut self, id: &str) -> Reply {
        let Some(volume) = self.volumes.get(id) else {
            return nova(404, "itemNotFound", &format!("Volume {id} could not be found."));
        };
        if !["available", "error"].contains(&volume.status.as_str()) {
            return nova(400, "badRequest", "Invalid volume: Volume status must be available or error");
        }
        self.volumes.remove(id);
        empty(202)
    }

    fn types(&self) -> Reply {
        let types: Vec<Value> = self.has("type").then(|| json!({"id": "t", "name": VOLUME_TYPE})).into_iter().collect();
        Reply { status: 200, body: json!({"volume_types": types}).to_string() }
    }
}

fn volume_value(volume: &Volume, server: Option<&str>) -> Value {
    let attachments: Vec<Value> = server.map(|id| json!({"server_id": id, "attachment_id": "a"})).into_iter().collect();
    json!({
        "id": volume.id, "name": volume.name, "status": volume.status, "metadata": volume.metadata, "size": volume.size,
        // Without a time zone, as Cinder writes it.
        "created_at": format!("{:.0}", Timestamp::now()).trim_end_matches('Z').to_owned() + ".000000",
        "attachments": attachments, "availability_zone": ZONE, "volume_type": VOLUME_TYPE,
    })
}

impl FakeCloud for OpenStack {
    fn call(&self, request: &Request) -> &'static str {
        match (request.method.as_str(), parts_of(request).as_slice()) {
            ("POST", ["identity", "v3", "auth", "tokens"]) => "token.create",
            ("GET", ["compute", "v2.1", "servers", "detail"]) => "server.list",
            ("GET", ["compute", "v2.1", "servers", _]) => "server.get",
            ("POST", ["compute", "v2.1", "servers"]) => "server.create",
            ("DELETE", ["compute", "v2.1", "servers", _]) => "server.delete",
            ("POST", ["compute", "v2.1", "servers", _, "metadata"]) => "metadata.set",
            ("DELETE", ["compute", "v2.1", "servers", _, "metadata", _]) => "metadata.delete",
            ("GET", ["compute", "v2.1", "images"]) => "image.list",
            ("GET", ["compute", "v2.1", "images", _]) => "image.get",
            ("GET", ["compute", "v2.1", "flavors"]) => "flavor.list",
            ("GET", ["compute", "v2.1", "flavors", _]) => "flavor.get",
            ("GET", ["compute", "v2.1", "flavors", _, "os-extra_specs"]) => "flavor.specs",
            ("GET", ["compute", "v2.1", "os-keypairs", _]) => "keypair.get",
            ("GET", ["compute", "v2.1", "os-availability-zone"]) => "zone.list",
            ("GET", ["compute", "v2.1", "os-server-groups", _]) => "server-group.get",
            ("GET", ["compute", "v2.1", "limits"]) => "limits.get",
            ("GET", ["network", "v2.0", "ports"]) => "port.list",
            ("POST", ["network", "v2.0", "ports"]) => "port.create",
            ("PUT", ["network", "v2.0", "ports", _]) => "port.update",
            ("PUT", ["network", "v2.0", "ports", _, "tags"]) => "port.tag",
            ("DELETE", ["network", "v2.0", "ports", _]) => "port.delete",
            ("GET", ["network", "v2.0", "networks"]) => "network.list",
            ("GET", ["network", "v2.0", "networks", _]) => "network.get",
            ("GET", ["network", "v2.0", "subnets", _]) => "subnet.get",
            ("GET", ["network", "v2.0", "security-groups"]) => "group.list",
            ("GET", ["volume", "v3", PROJECT_ID, "volumes", "detail"]) => "volume.list",
            ("GET", ["volume", "v3", PROJECT_ID, "volumes", _]) => "volume.get",
            ("POST", ["volume", "v3", PROJECT_ID, "volumes"]) => "volume.create",
            ("DELETE", ["volume", "v3", PROJECT_ID, "volumes", _]) => "volume.delete",
            ("GET", ["volume", "v3", PROJECT_ID, "types"]) => "type.list",
            (_, ["load-balancer", ..]) => Octavia::call(request),
            _ => "unknown",
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (call, parts) = (self.call(request), parts_of(request));
        self.issued = None;
        let is_known = request.headers.get("x-auth-token").is_some_and(|token| self.tokens.contains(token));
        if call != "token.create" && !is_known {
            return keystone(401, "The request you have made requires authentication.");
        }
        if parts.first() == Some(&"load-balancer") {
            return self.octavia.answer(call, request).unwrap_or_else(|problem| {
                self.violations.push(problem.clone());
                octavia(400, &problem)
            });
        }
        // `/compute/v2.1/<kind>/<id>`, and one more for volumes.
        let at = if parts.first() == Some(&"volume") { 4 } else { 3 };
        let id = parts.get(at).copied().unwrap_or_default();
        match call {
            "token.create" => self.token(request),
            "server.list" => self.list_servers(request),
            "server.get" => self.get_server(id),
            "server.create" => self.create_server(request),
            "server.delete" => self.delete_server(id),
            "metadata.set" => self.set_metadata(id, request),
            "metadata.delete" => self.delete_metadata(id, parts[5]),
            "image.list" => self.images(request),
            "image.get" => self.of_nova("image", "image", self.has_image(id)),
            "flavor.list" => self.flavors(),
            "flavor.get" => self.flavor(id),
            "flavor.specs" => self.flavor_specs(id),
            "keypair.get" => self.of_nova("keypair", "keypair", id == KEY_PAIR),
            "zone.list" => self.zones(),
            "server-group.get" => self.of_nova("server_group", "server group", id == SERVER_GROUP_ID),
            "limits.get" => self.limits(),
            "port.list" => self.list_ports(request),
            "port.create" => self.create_port(request),
            "port.update" => self.update_port(id, request),
            "port.tag" => self.tag_port(id, request),
            "port.delete" => self.delete_port(id),
            "network.list" => self.named(
                "networks",
                "network",
                &[(NETWORK, NETWORK_ID), (SECOND_NETWORK, SECOND_NETWORK_ID)],
                request,
            ),
            "network.get" => self.of_neutron("network", id, &[NETWORK_ID, SECOND_NETWORK_ID]),
            "subnet.get" => self.of_neutron("subnet", id, &[SUBNET_ID]),
            "group.list" => self.named("security_groups", "group", &[(GROUP, GROUP_ID)], request),
            "volume.list" => self.list_volumes(request),
            "volume.get" => self.get_volume(id),
            "volume.create" => self.create_volume(request),
            "volume.delete" => self.delete_volume(id),
            "type.list" => self.types(),
            _ => Reply { status: 404, body: "404 Not Found".to_owned() },
        }
    }

    fn headers(&mut self) -> Vec<(&'static str, String)> {
        self.issued.take().map(|token| ("x-subject-token", token)).into_iter().collect()
    }
}

/// The parts of the path of a request.
fn parts_of(request: &Request) -> Vec<&str> {
    request.path.split('/').filter(|part| !part.is_empty()).collect()
}

fn query_of(request: &Request) -> BTreeMap<String, String> {
    let url = Url::parse(&format!("http://fake/?{}", request.query)).unwrap();
    url.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

/// A regular expression of names, as far as mcm sends them; others match a part of the name.
fn is_match(pattern: &str, name: &str) -> bool {
    let is_like = |choice: &str| {
        choice.len() == name.len() && choice.bytes().zip(name.bytes()).all(|(one, other)| one == b'.' || one == other)
    };
    match pattern.strip_prefix("^(").and_then(|rest| rest.strip_suffix(")$")) {
        Some(choices) => choices.split('|').any(is_like),
        None => name.contains(pattern),
    }
}

fn links_of(kind: &str, id: &str) -> [Value; 2] {
    ["self", "bookmark"].map(|rel| json!({"rel": rel, "href": format!("http://nova.internal/v2.1/{kind}/{id}")}))
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn empty(status: u16) -> Reply {
    Reply { status, body: String::new() }
}

/// An error of Keystone, and of every service for a token that it does not accept.
pub fn keystone(status: u16, message: &str) -> Reply {
    let title = if status == 401 { "Unauthorized" } else { "Forbidden" };
    Reply { status, body: json!({"error": {"code": status, "title": title, "message": message}}).to_string() }
}

/// An error of Nova or Cinder.
pub fn nova(status: u16, kind: &str, message: &str) -> Reply {
    Reply { status, body: json!({kind: {"code": status, "message": message}}).to_string() }
}

/// An error of Neutron.
pub fn neutron(status: u16, kind: &str, message: &str) -> Reply {
    Reply { status, body: json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}).to_string() }
}
