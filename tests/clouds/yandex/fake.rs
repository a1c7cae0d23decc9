//! A fake of Yandex Cloud: it keeps instances, operations and addresses as the real one does, and refuses every request that does
//! not fit the messages of its API.
//!
//! The messages are read from Yandex Cloud's own client (yandexcloud 0.413.0), the rules for values from its protos, states and
//! errors from its documentation.

use std::collections::{BTreeMap, VecDeque};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use ring::signature::{RSA_PSS_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::{Value, json};

use super::kit::{
    server::{FakeCloud, Reply, Request},
    swagger::Definitions,
};

pub const FOLDER: &str = "b1gfolder";
pub const ZONE: &str = "ru-central1-a";
pub const SUBNET: &str = "e9bsubnet";
pub const IMAGE: &str = "fd8image";
pub const DISK_TYPE: &str = "network-ssd";
pub const PLATFORMS: [&str; 2] = ["standard-v3", "standard-v2"];
pub const ACCOUNT: &str = "ajeaccount";
pub const KEY_ID: &str = "ajekey";
/// In PEM form, after a line as Yandex Cloud writes it.
pub const PRIVATE_KEY: &str = include_str!("key.pem");

const AUDIENCE: &str = "https://iam.api.cloud.yandex.net/iam/v1/tokens";
/// Requests of tokens are valid for so long at most, in seconds.
const LONGEST_REQUEST: i64 = 3600;
const MOST_LABELS: usize = 64;
/// The smallest disk, in bytes.
const LEAST_DISK: i64 = 4 << 20;
const MOST_USER_DATA: usize = 256 * 1024;

/// Work that the cloud carries out after its answer.
#[derive(Clone, Debug)]
struct Operation {
    shown: Value,
    /// It is done after so many more requests of any kind.
    left: usize,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    /// Ends with an error if there is one, and leaves nothing behind.
    Create(String, Option<(u16, &'static str)>),
    Delete(String),
    Label(String, Value),
}

/// The cloud with the instances of one folder.
pub struct YandexApi {
    definitions: Definitions,
    /// By ID, in the form of the API.
    pub instances: BTreeMap<String, Value>,
    /// The metadata of instances, which lists do not show.
    pub metadata: BTreeMap<String, Value>,
    operations: BTreeMap<String, Operation>,
    /// Operations by idempotency keys.
    keys: BTreeMap<String, String>,
    /// The number in the ID of the first instance.
    pub first: u64,
    /// Instances that were ever created.
    pub created: u64,
    /// Requests that do not fit the API.
    pub violations: Vec<String>,
    /// The folder may have so many instances.
    pub quota: Option<usize>,
    /// The zone has hosts for so many instances.
    pub hosts: Option<usize>,
    /// So many operations run at a time.
    pub most_operations: usize,
    /// An operation is done after so many more requests.
    pub steps: usize,
    /// Instances that no list contains.
    pub unlisted: Vec<String>,
    /// How the next creations end.
    pub failing: VecDeque<(u16, &'static str)>,
    /// How creations of instances with these names end.
    pub failing_names: Vec<(&'static str, u16, &'static str)>,
    /// The most entries of a page.
    pub page: usize,
    /// Static public addresses, and whether they are in use.
    pub addresses: Vec<(String, bool)>,
    /// Resources that are not there.
    pub absent: Vec<&'static str>,
    /// The host of each service. `None`: the host of the request.
    pub host: Option<String>,
    tokens: Vec<String>,
    issued: u64,
}

impl YandexApi {
    pub fn new() -> Self {
        Self {
            definitions: Definitions::of(include_str!("api.json")),
            instances: BTreeMap::new(),
            metadata: BTreeMap::new(),
            operations: BTreeMap::new(),
            keys: BTreeMap::new(),
            first: 0,
            created: 0,
            violations: Vec::new(),
            quota: None,
            hosts: None,
            most_operations: usize::MAX,
            steps: 2,
            unlisted: Vec::new(),
            failing: VecDeque::new(),
            failing_names: Vec::new(),
            page: 1000,
            addresses: Vec::new(),
            absent: Vec::new(),
            host: None,
            tokens: Vec::new(),
            issued: 0,
        }
    }

    /// An error as the API sends it, by the number of its status.
    pub fn error(&self, code: u16, message: &str) -> Reply {
        let info = json!({"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "e38e71c3"});
        self.error_with(code, message, vec![info])
    }

    /// A quota does not suffice.
    pub fn quota_error(&self) -> Reply {
        let metric = json!({"name": "compute.instances.count", "limit": "12", "usage": 12.0});
        let mut failure = json!({"violations": [{"metric": metric, "required": "13"}]});
        self.definitions.check("quota.QuotaFailure", &failure).unwrap();
        failure["@type"] = "type.googleapis.com/yandex.cloud.quota.QuotaFailure".into();
        self.error_with(8, "The limit on maximum number of instances has exceeded.", vec![failure])
    }

    fn error_with(&self, code: u16, message: &str, details: Vec<Value>) -> Reply {
        let status = json!({"code": code, "message": message, "details": details});
        self.definitions.check("google.rpc.Status", &status).unwrap();
        Reply { status: status_of(code), body: status.to_string() }
    }

    /// Creates an instance behind the back of mcm; returns its ID.
    pub fn put(&mut self, name: &str, labels: &[&str]) -> String {
        let labels: BTreeMap<&str, &str> =
            labels.iter().map(|label| label.split_once('=').unwrap_or((label, "1"))).collect();
        let body = json!({
            "folderId": FOLDER, "name": name, "zoneId": ZONE, "platformId": PLATFORMS[0], "labels": labels,
            "networkInterfaceSpecs": [{"subnetId": SUBNET, "primaryV4AddressSpec": {}}],
        });
        let id = self.add(&body);
        self.instances.get_mut(&id).unwrap()["status"] = "RUNNING".into();
        id
    }

    /// Deletes an instance behind the back of mcm.
    pub fn take(&mut self, id: &str) {
        self.metadata.remove(id);
        let Some(instance) = self.instances.remove(id) else { return };
        for interface in instance["networkInterfaces"].as_array().unwrap() {
            let address = &interface["primaryV4Address"]["oneToOneNat"]["address"];
            self.addresses.iter_mut().filter(|(one, _)| address == one).for_each(|(_, is_used)| *is_used = false);
        }
    }

    /// Instances that are not being deleted.
    pub fn alive(&self) -> Vec<&Value> {
        self.instances.values().filter(|instance| instance["status"] != "DELETING").collect()
    }

    /// Tokens are not valid any more.
    pub fn revoke_tokens(&mut self) {
        self.tokens.clear();
    }

    /// The cloud does not remember its operations and their keys any more.
    pub fn forget_operations(&mut self) {
        self.operations.clear();
        self.keys.clear();
    }

    /// Carries out what is due. Each request is a step.
    fn step(&mut self) {
        let mut done = Vec::new();
        for (id, operation) in &mut self.operations {
            if operation.shown.get("done").is_none() {
                operation.left = operation.left.saturating_sub(1);
                done.extend((operation.left == 0).then(|| id.clone()));
            }
        }
        done.iter().for_each(|id| self.finish(id));
    }

    fn finish(&mut self, id: &str) {
        let Operation { work, mut shown, .. } = self.operations[id].clone();
        shown["done"] = true.into();
        match work {
            Work::Create(instance, Some((code, message))) => {
                self.take(&instance);
                shown["error"] = json!({"code": code, "message": message});
            }
            Work::Create(instance, None) => {
                if let Some(found) = self.instances.get_mut(&instance) {
                    found["status"] = "RUNNING".into();
                }
                shown["response"] = self.any("compute.v1.Instance", &instance);
            }
            Work::Delete(instance) => {
                self.take(&instance);
                shown["response"] = json!({"@type": "type.googleapis.com/google.protobuf.Empty"});
            }
            Work::Label(instance, labels) => {
                if let Some(found) = self.instances.get_mut(&instance) {
                    found["labels"] = labels;
                }
                shown["response"] = self.any("compute.v1.Instance", &instance);
            }
        }
        self.operations.get_mut(id).unwrap().shown = shown;
    }

    fn any(&self, kind: &str, instance: &str) -> Value {
        let mut value = self.instances.get(instance).cloned().unwrap_or_else(|| json!({}));
        value["@type"] = format!("type.googleapis.com/yandex.cloud.{kind}").into();
        value
    }

    fn begin(&mut self, metadata: &str, instance: &str, work: Work) -> Reply {
        let id = format!("fhmop{}", self.operations.len());
        let shown = json!({
            "id": id, "description": metadata, "createdAt": "2026-11-26T17:00:00Z", "createdBy": ACCOUNT,
            "modifiedAt": "2026-11-26T17:00:00Z",
            "metadata": {"@type": format!("type.googleapis.com/yandex.cloud.compute.v1.{metadata}"), "instanceId": instance},
        });
        self.operations.insert(id.clone(), Operation { shown, left: self.steps.max(1), work });
        self.operation(&id)
    }

    fn operation(&self, id: &str) -> Reply {
        match self.operations.get(id) {
            Some(operation) => self.checked("operation.Operation", operation.shown.clone()),
            None => self.error(5, &format!("Operation {id} not found")),
        }
    }

    fn checked(&self, definition: &str, value: Value) -> Reply {
        self.definitions.check(definition, &value).unwrap();
        Reply { status: 200, body: value.to_string() }
    }

    /// Adds an instance in its first state.
    fn add(&mut self, body: &Value) -> String {
        let number = self.created;
        self.created += 1;
        let id = format!("fhm{:05}", self.first + number);
        let interfaces = body["networkInterfaceSpecs"].as_array().into_iter().flatten().enumerate();
        let interfaces: Vec<Value> = interfaces.map(|(index, one)| self.interface(number, index, one)).collect();
        let mut instance = json!({
            "id": id, "folderId": body["folderId"], "createdAt": "2026-11-26T17:00:00Z", "name": body["name"],
            "zoneId": body["zoneId"], "platformId": body["platformId"], "status": "PROVISIONING",
            "networkInterfaces": interfaces, "fqdn": format!("{}.ru-central1.internal", body["name"].as_str().unwrap()),
            "resources": {"memory": "4294967296", "cores": "2", "coreFraction": "100"},
            "bootDisk": {"mode": "READ_WRITE", "autoDelete": true, "diskId": format!("fhmdisk{number}")},
            "schedulingPolicy": {}, "networkSettings": {"type": "STANDARD"}, "placementPolicy": {},
        });
        // Empty maps are left out.
        if body["labels"].as_object().is_some_and(|labels| !labels.is_empty()) {
            instance["labels"] = body["labels"].clone();
        }
        self.definitions.check("compute.v1.Instance", &instance).unwrap();
        self.instances.insert(id.clone(), instance);
        self.metadata.insert(id.clone(), body["metadata"].clone());
        id
    }

    fn interface(&mut self, number: u64, index: usize, spec: &Value) -> Value {
        let mut address = json!({"address": format!("10.{index}.{}.{}", number >> 8, number & 255)});
        let nat = &spec["primaryV4AddressSpec"]["oneToOneNatSpec"];
        if nat.is_object() {
            let public = nat["address"]
                .as_str()
                .map_or_else(|| format!("198.51.{}.{}", number >> 8, number & 255), str::to_owned);
            self.addresses.iter_mut().filter(|(one, _)| *one == public).for_each(|(_, is_used)| *is_used = true);
            address["oneToOneNat"] = json!({"address": public, "ipVersion": "IPV4"});
        }
        json!({
            "index": index.to_string(), "macAddress": "d0:0d:00:00:00:01", "subnetId": spec["subnetId"], "primaryV4Address": address,
        })
    }

    fn create(&mut self, body: &Value, key: Option<&str>) -> Reply {
        if let Some(begun) = key.and_then(|key| self.keys.get(key)) {
            return self.operation(begun);
        }
        if let Err(problem) = checked_values(body) {
            return self.refuse(&problem);
        }
        let name = &body["name"];
        for (field, known) in [("folderId", FOLDER), ("zoneId", ZONE)] {
            if body[field] != known {
                return self.error(5, &format!("{field} {} not found", body[field]));
            }
        }
        if body["bootDiskSpec"]["diskSpec"]["imageId"] != IMAGE {
            return self.error(5, "Image not found");
        }
        if body["networkInterfaceSpecs"].as_array().unwrap().iter().any(|one| one["subnetId"] != SUBNET) {
            return self.error(5, "Subnet not found");
        }
        if self.instances.values().any(|one| one["name"] == *name && one["folderId"] == FOLDER) {
            return self.error(6, &format!("Instance with name {name} already exists"));
        }
        if self.operations.values().filter(|one| one.left > 0).count() >= self.most_operations {
            return self.error(8, "The limit on maximum number of active operations has exceeded.");
        }
        if self.quota.is_some_and(|quota| self.instances.len() >= quota) {
            return self.quota_error();
        }
        for interface in body["networkInterfaceSpecs"].as_array().unwrap() {
            let address = &interface["primaryV4AddressSpec"]["oneToOneNatSpec"]["address"];
            if self.addresses.iter().any(|(one, is_used)| *is_used && address == one) {
                return self.error(9, &format!("Address {address} is in use"));
            }
        }
        let is_out_of_stock = self.hosts.is_some_and(|hosts| self.instances.len() >= hosts);
        let of_name =
            self.failing_names.iter().find(|(one, ..)| name == one).map(|(_, code, message)| (*code, *message));
        let failure = match of_name {
            None if is_out_of_stock => Some((8, "Not enough resources")),
            None => self.failing.pop_front(),
            failure => failure,
        };
        let id = self.add(body);
        let reply = self.begin("CreateInstanceMetadata", &id, Work::Create(id.clone(), failure));
        if let Some(key) = key {
            let last = self.operations.len() - 1;
            self.keys.insert(key.to_owned(), format!("fhmop{last}"));
        }
        reply
    }

    fn delete(&mut self, id: &str) -> Reply {
        let Some(instance) = self.instances.get_mut(id) else { return self.no_instance(id) };
        if instance["status"] == "DELETING" {
            return self.error(9, &format!("Instance {id} is being deleted"));
        }
        instance["status"] = "DELETING".into();
        self.begin("DeleteInstanceMetadata", id, Work::Delete(id.to_owned()))
    }

    fn update(&mut self, id: &str, body: &Value) -> Reply {
        if !self.instances.contains_key(id) {
            return self.no_instance(id);
        }
        if body["updateMask"] != "labels" {
            return self.refuse("without updateMask all other fields would be reset");
        }
        if let Err(problem) = checked_labels(&body["labels"]) {
            return self.refuse(&problem);
        }
        self.begin("UpdateInstanceMetadata", id, Work::Label(id.to_owned(), body["labels"].clone()))
    }

    fn no_instance(&self, id: &str) -> Reply {
        self.error(5, &format!("Instance {id} not found"))
    }

    fn list_instances(&mut self, query: &BTreeMap<String, String>) -> Reply {
        let filter = match query.get("filter").map(|filter| filter_of(filter)).transpose() {
            Ok(filter) => filter,
            Err(problem) => return self.refuse(&problem),
        };
        let fits = |instance: &&Value| {
            let is_listed = instance["folderId"] == FOLDER && !self.unlisted.iter().any(|id| instance["id"] == **id);
            is_listed && filter.as_ref().is_none_or(|(field, value)| instance[*field] == *value)
        };
        let all: Vec<Value> = self.instances.values().filter(fits).cloned().collect();
        self.page_of("instances", "compute.v1.ListInstancesResponse", all, query)
    }

    fn list_addresses(&mut self, query: &BTreeMap<String, String>) -> Reply {
        let address = |(index, (value, is_used)): (usize, &(String, bool))| {
            let mut address = json!({
                "id": format!("e9baddress{index:02}"), "folderId": FOLDER, "type": "EXTERNAL", "ipVersion": "IPV4", "reserved": true,
                "externalIpv4Address": {"address": value, "zoneId": ZONE},
            });
            if *is_used {
                address["used"] = true.into();
            }
            address
        };
        let all = self.addresses.iter().enumerate().map(address).collect();
        self.page_of("addresses", "vpc.v1.ListAddressesResponse", all, query)
    }

    fn page_of(&mut self, field: &str, definition: &str, all: Vec<Value>, query: &BTreeMap<String, String>) -> Reply {
        if query["folderId"] != FOLDER {
            return self.error(5, "Folder not found");
        }
        let size = query.get("pageSize").map_or(Ok(100), |size| size.parse());
        let Some(size) = size.ok().filter(|size: &usize| *size <= 1000) else {
            return self.refuse("pageSize is at most 1000");
        };
        let size = if size == 0 { self.page } else { size.min(self.page) };
        let after = query.get("pageToken").map(String::as_str).unwrap_or_default();
        let rest: Vec<Value> = all.into_iter().filter(|one| one["id"].as_str().unwrap() > after).collect();
        let mut answer = json!({});
        if rest.len() > size {
            answer["nextPageToken"] = rest[size - 1]["id"].clone();
        }
        // An empty list is left out.
        if !rest.is_empty() {
            answer[field] = rest.into_iter().take(size).collect::<Vec<_>>().into();
        }
        self.checked(definition, answer)
    }

    fn resource(&self, kind: &'static str, id: &str) -> Reply {
        let (definition, known, value) = match kind {
            "zone" => ("compute.v1.Zone", ZONE, json!({"id": id, "regionId": "ru-central1", "status": "UP"})),
            "image" => {
                let image = json!({"id": id, "name": "ubuntu-2404", "status": "READY", "minDiskSize": "10737418240"});
                ("compute.v1.Image", IMAGE, image)
            }
            "disk type" => ("compute.v1.DiskType", DISK_TYPE, json!({"id": id, "zoneIds": [ZONE, "ru-central1-b"]})),
            "folder" => ("resourcemanager.v1.Folder", FOLDER, json!({"id": id, "name": "team", "status": "ACTIVE"})),
            _ => {
                let subnet = json!({"id": id, "zoneId": ZONE, "v4CidrBlocks": ["10.0.0.0/16"], "folderId": FOLDER});
                ("vpc.v1.Subnet", SUBNET, subnet)
            }
        };
        if id != known || self.absent.contains(&kind) {
            return self.error(5, &format!("{kind} {id} not found"));
        }
        self.checked(definition, value)
    }

    fn endpoints(&self, request: &Request) -> Reply {
        let address = self.host.clone().unwrap_or_else(|| request.headers["host"].clone());
        let ids = ["compute", "iam", "operation", "resource-manager", "vpc"];
        let all: Vec<Value> = ids.map(|id| json!({"id": id, "address": address})).into();
        self.checked("endpoint.ListApiEndpointsResponse", json!({"endpoints": all}))
    }

    fn token(&mut self, body: &Value, host: &str) -> Reply {
        if let Err(problem) = verified(body["jwt"].as_str().unwrap_or_default(), host) {
            return self.error(16, &format!("JWT is invalid: {problem}"));
        }
        self.issued += 1;
        let token = format!("t1.9euelZ-{:04}", self.issued);
        self.tokens.push(token.clone());
        let expires = Timestamp::now() + SignedDuration::from_hours(12);
        self.checked("iam.v1.CreateIamTokenResponse", json!({"iamToken": token, "expiresAt": expires.to_string()}))
    }

    /// Refuses a request that does not fit the API.
    fn refuse(&mut self, problem: &str) -> Reply {
        self.violations.push(problem.to_owned());
        self.error(3, problem)
    }

    /// Reads the body of a request, which has to fit its message.
    fn body(&self, definition: &str, request: &Request) -> Result<Value, String> {
        let value = serde_json::from_str(&request.body).map_err(|error| error.to_string())?;
        self.definitions.check(definition, &value).map_err(|problem| format!("{definition}: {problem}"))?;
        Ok(value)
    }

    /// Reads the parameters of a request, which have to fit its message.
    fn query(&self, definition: &str, request: &Request) -> Result<BTreeMap<String, String>, String> {
        let url = Url::parse(&format!("http://x/?{}", request.query)).map_err(|error| error.to_string())?;
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let checked = self.definitions.check(definition, &json!(query));
        checked.map_err(|problem| format!("{definition}: {problem}")).map(|()| query)
    }
}

impl FakeCloud for YandexApi {
    fn call(&self, request: &Request) -> &'static str {
        match (request.method.as_str(), request.path.split('/').skip(1).collect::<Vec<_>>().as_slice()) {
            ("GET", ["endpoints"]) => "endpoint.list",
            ("POST", ["iam", "v1", "tokens"]) => "token.create",
            ("GET", ["compute", "v1", "instances"]) => "instance.list",
            ("POST", ["compute", "v1", "instances"]) => "instance.create",
            ("GET", ["compute", "v1", "instances", _]) => "instance.get",
            ("PATCH", ["compute", "v1", "instances", _]) => "instance.update",
            ("DELETE", ["compute", "v1", "instances", _]) => "instance.delete",
            ("GET", ["operations", _]) => "operation.get",
            ("GET", ["vpc", "v1", "addresses"]) => "address.list",
            ("GET", ["vpc", "v1", "subnets", _]) => "subnet.get",
            ("GET", ["compute", "v1", "zones", _]) => "zone.get",
            ("GET", ["compute", "v1", "images", _]) => "image.get",
            ("GET", ["compute", "v1", "diskTypes", _]) => "disk_type.get",
            ("GET", ["resource-manager", "v1", "folders", _]) => "folder.get",
            _ => "unknown",
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let call = self.call(request);
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        if call == "endpoint.list" {
            return self.endpoints(request);
        }
        if call == "token.create" {
            let host = header("host").unwrap_or_default().split(':').next().unwrap_or_default().to_owned();
            return match self.body("iam.v1.CreateIamTokenRequest", request) {
                Ok(body) => self.token(&body, &host),
                Err(problem) => self.refuse(&problem),
            };
        }
        let token = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        if !token.is_some_and(|token| self.tokens.iter().any(|one| one == token)) {
            return self.error(16, "Token is invalid or has expired.");
        }
        self.step();
        let key = header("idempotency-key");
        if key.is_some_and(|key| !is_uuid(key)) {
            return self.refuse("the idempotency key is not a UUID");
        }
        let id = request.path.rsplit('/').next().unwrap_or_default().to_owned();
        let carried_out = match call {
            "instance.list" => {
                self.query("compute.v1.ListInstancesRequest", request).map(|query| self.list_instances(&query))
            }
            "address.list" => {
                self.query("vpc.v1.ListAddressesRequest", request).map(|query| self.list_addresses(&query))
            }
            "instance.create" => {
                self.body("compute.v1.CreateInstanceRequest", request).map(|body| self.create(&body, key))
            }
            "instance.update" => {
                self.body("compute.v1.UpdateInstanceRequest", request).map(|body| self.update(&id, &body))
            }
            "instance.delete" => Ok(self.delete(&id)),
            "instance.get" => Ok(match self.instances.get(&id) {
                Some(instance) => self.checked("compute.v1.Instance", instance.clone()),
                None => self.no_instance(&id),
            }),
            "operation.get" => Ok(self.operation(&id)),
            "subnet.get" => Ok(self.resource("subnet", &id)),
            "zone.get" => Ok(self.resource("zone", &id)),
            "image.get" => Ok(self.resource("image", &id)),
            "disk_type.get" => Ok(self.resource("disk type", &id)),
            "folder.get" => Ok(self.resource("folder", &id)),
            _ => Err(format!("there is no method {} {}", request.method, request.path)),
        };
        carried_out.unwrap_or_else(|problem| self.refuse(&problem))
    }
}

/// The HTTP status of a status of gRPC.
fn status_of(code: u16) -> u16 {
    match code {
        3 | 9 | 11 => 400,
        16 => 401,
        7 => 403,
        5 => 404,
        6 | 10 => 409,
        8 => 429,
        12 => 501,
        14 => 503,
        4 => 504,
        _ => 500,
    }
}

/// The field and the value of a filter. There are other operators, but mcm and the reference have this one only.
fn filter_of(filter: &str) -> Result<(&'static str, String), String> {
    let (field, value) = filter.split_once('=').ok_or_else(|| format!("the fake cannot read the filter {filter}"))?;
    let field = ["id", "name"].into_iter().find(|one| *one == field.trim());
    let value = value.trim().strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    match (field, value) {
        (Some(field), Some(value)) if !value.contains(['"', '\\']) => Ok((field, value.to_owned())),
        _ => Err(format!("the fake cannot read the filter {filter}")),
    }
}

/// The rules for values in the comments of the protos.
fn checked_values(body: &Value) -> Result<(), String> {
    for field in ["name", "hostname"] {
        let name = body[field].as_str().unwrap_or_default();
        if !name.is_empty() && !is_name(name) {
            return Err(format!("{field} {name} does not match [a-z]([-_a-z0-9]{{0,61}}[a-z0-9])?"));
        }
    }
    if !PLATFORMS.iter().any(|platform| body["platformId"] == *platform) {
        return Err(format!("platform {} is unknown", body["platformId"]));
    }
    let resources = &body["resourcesSpec"];
    for field in ["cores", "memory"] {
        whole(&resources[field]).filter(|number| *number > 0).ok_or_else(|| format!("{field} is not a number"))?;
    }
    for field in ["coreFraction", "gpus"] {
        if !resources[field].is_null() {
            whole(&resources[field]).ok_or_else(|| format!("{field} is not a number"))?;
        }
    }
    let disk = &body["bootDiskSpec"]["diskSpec"];
    whole(&disk["size"]).filter(|size| *size >= LEAST_DISK).ok_or("the size of the disk is too small")?;
    if body["networkInterfaceSpecs"].as_array().is_none_or(Vec::is_empty) {
        return Err("networkInterfaceSpecs is required".to_owned());
    }
    let metadata = body["metadata"].as_object().into_iter().flatten();
    if let Some((key, _)) =
        metadata.into_iter().find(|(_, value)| value.as_str().is_none_or(|text| text.len() > MOST_USER_DATA))
    {
        return Err(format!("metadata {key} is too long"));
    }
    checked_labels(&body["labels"])
}

fn checked_labels(labels: &Value) -> Result<(), String> {
    let Some(labels) = labels.as_object() else { return Ok(()) };
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./\\@".contains(c);
    let fits = |text: &str| text.len() <= 63 && text.chars().all(is_allowed);
    for (key, value) in labels {
        let begins = key.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !fits(key) || !value.as_str().is_some_and(fits) {
            return Err(format!("label {key}={value} does not match"));
        }
    }
    if labels.len() > MOST_LABELS { Err(format!("{} labels", labels.len())) } else { Ok(()) }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 63
        && name.chars().all(is_allowed)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.ends_with(is_end)
}

/// A whole number of 64 bits, which is a text.
fn whole(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Checks the request of a token: signature, key, account, audience and times.
fn verified(jwt: &str, host: &str) -> Result<(), String> {
    let parts: Vec<&str> = jwt.split('.').collect();
    let [header, claims, signature] = parts.as_slice() else { return Err("it does not have three parts".to_owned()) };
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|error| error.to_string());
    let read = |part: &str| serde_json::from_slice::<Value>(&bytes(part)?).map_err(|error| error.to_string());
    let (found, claims_found) = (read(header)?, read(claims)?);
    if found != json!({"alg": "PS256", "typ": "JWT", "kid": KEY_ID}) {
        return Err(format!("header {found}"));
    }
    let pem = PrivatePkcs8KeyDer::from_pem_slice(PRIVATE_KEY.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(pem.secret_pkcs8_der()).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, pair.public().as_ref().to_vec());
    key.verify(format!("{header}.{claims}").as_bytes(), &bytes(signature)?).map_err(|_| "wrong signature")?;
    let audience = claims_found["aud"].as_str().unwrap_or_default();
    if claims_found["iss"] != ACCOUNT
        || (audience != AUDIENCE && audience != format!("https://iam.{host}/iam/v1/tokens"))
    {
        return Err(format!("claims {claims_found}"));
    }
    let time = |name: &str| claims_found[name].as_i64().ok_or_else(|| format!("no {name}"));
    let (issued, expires, now) = (time("iat")?, time("exp")?, Timestamp::now().as_second());
    if issued > now + 60 || expires < now || expires - issued > LONGEST_REQUEST {
        return Err("it is not valid now".to_owned());
    }
    Ok(())
}

/// The value of a label of an instance.
pub fn label_of<'a>(instance: &'a Value, key: &str) -> Option<&'a str> {
    instance["labels"][key].as_str()
}
