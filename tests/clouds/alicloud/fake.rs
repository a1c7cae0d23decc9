//! A fake of ECS: it keeps VMs as the real one does, and refuses every request that does not fit the description of the API.
//!
//! Parameters follow Alibaba Cloud's description of the API (2025-12), responses that of 2024-06. Statuses, wildcards, pages,
//! tokens of creations and limits follow its documentation.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use ring::{digest, hmac};
use serde_json::{Value, json};

use super::kit::{
    server::{FakeCloud, Reply, Request},
    swagger::Definitions,
};

pub const REGION: &str = "cn-beijing";
pub const ZONE: &str = "cn-beijing-a";
pub const IMAGE: &str = "m-2zeubuntu2404";
pub const TYPE: &str = "ecs.g7.large";
/// A type that only some tests need.
pub const LARGE: &str = "ecs.g7.2xlarge";
pub const VPC: &str = "vpc-2zeshoot";
pub const SWITCH: &str = "vsw-2zeshoot";
pub const GROUP: &str = "sg-2zeshoot";
pub const KEY_PAIR: &str = "operators";
pub const KEY_ID: &str = "LTAI-top-secret-id";
pub const KEY_SECRET: &str = "top-secret-access-key";

/// The actions of the description.
const ACTIONS: [&str; 11] = [
    "RunInstances",
    "DescribeInstances",
    "DeleteInstance",
    "TagResources",
    "UntagResources",
    "DescribeImages",
    "DescribeInstanceTypes",
    "DescribeVSwitches",
    "DescribeSecurityGroups",
    "DescribeKeyPairs",
    "DescribeZones",
];
/// A signature may be so old, in seconds.
const LIFETIME: i64 = 900;
/// A filter by tags shows no more VMs.
const MOST_TAGGED: usize = 1000;
const MOST_TAGS: usize = 20;
const MOST_IDS: usize = 100;
const MOST_USER_DATA: usize = 32 << 10;

/// The parameters of a request.
type Parameters = BTreeMap<String, String>;

/// A VM.
#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    pub name: String,
    pub status: &'static str,
    pub tags: BTreeMap<String, String>,
    /// The parameters of its creation.
    pub sent: Parameters,
    pub region: &'static str,
    pub is_protected: bool,
    address: String,
    /// So many look-ups do not show it yet.
    hidden: usize,
    /// So many look-ups show it before it runs.
    boots: usize,
    /// So many look-ups show it although it was deleted.
    lingers: Option<usize>,
}

/// The API with its VMs.
pub struct Ecs {
    answers: Definitions,
    description: Value,
    pub instances: BTreeMap<String, Instance>,
    /// Before the number in the ID of a VM.
    pub prefix: String,
    /// VMs that were ever created.
    pub created: u64,
    /// Requests that do not fit the description.
    pub violations: Vec<String>,
    /// Creations by their token: parameters and answer.
    tokens: BTreeMap<String, (Parameters, Reply)>,
    nonces: BTreeSet<String>,
    /// VMs that are left of any type.
    pub stock: usize,
    /// Addresses that are left in the vSwitch.
    pub addresses: usize,
    /// A new VM is not shown by so many look-ups.
    pub hides: usize,
    /// A new VM starts during so many look-ups.
    pub boots: usize,
    /// A VM that is deleted is shown by so many look-ups.
    pub lingers: usize,
    /// Resources that are not there.
    pub absent: Vec<&'static str>,
    /// Most VMs in a page, whatever a request sets.
    pub page: usize,
    /// The page with this number is an error.
    pub fails_at_page: Option<usize>,
    /// The user may not list VMs, and gets an empty list, as until the end of 2025.
    pub is_blind: bool,
    /// A look-up with this ID is an error.
    pub refused_id: Option<&'static str>,
}

impl Ecs {
    pub fn new() -> Self {
        let document = include_str!("ecs-api.json");
        let description: Value = serde_json::from_str(document).unwrap();
        Self {
            answers: Definitions::of(document),
            description: description["parameters"].clone(),
            instances: BTreeMap::new(),
            prefix: "2ze".to_owned(),
            created: 0,
            violations: Vec::new(),
            tokens: BTreeMap::new(),
            nonces: BTreeSet::new(),
            stock: usize::MAX,
            addresses: 1 << 20,
            hides: 0,
            boots: 0,
            lingers: 0,
            absent: Vec::new(),
            page: 100,
            fails_at_page: None,
            is_blind: false,
            refused_id: None,
        }
    }

    /// VMs that exist, and are not only shown.
    pub fn alive(&self) -> Vec<&Instance> {
        self.instances.values().filter(|instance| instance.lingers.is_none()).collect()
    }

    /// Creates a VM behind the back of mcm; returns its ID.
    pub fn put(&mut self, name: &str, tags: &[(&str, &str)]) -> String {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.create(name, tags, Parameters::new())
    }

    /// Ends a VM behind the back of mcm.
    pub fn take(&mut self, id: &str) {
        self.instances.remove(id).unwrap();
    }

    /// Accepts a request that was sent already.
    pub fn forget_nonces(&mut self) {
        self.nonces.clear();
    }

    /// An error as ECS sends it.
    pub fn error(status: u16, code: &str, message: &str) -> Reply {
        let body = json!({
            "RequestId": "473469C7-AA6F-4DC5-B3DB-A3DC0DE3C83E", "HostId": "ecs.cn-beijing.aliyuncs.com", "Code": code,
            "Message": message, "Recommend": "https://api.alibabacloud.com/troubleshoot",
        });
        Reply { status, body: body.to_string() }
    }

    fn create(&mut self, name: &str, tags: BTreeMap<String, String>, sent: Parameters) -> String {
        let number = self.created;
        self.created += 1;
        let id = format!("i-{}{number:08}", self.prefix);
        let instance = Instance {
            id: id.clone(),
            name: name.to_owned(),
            status: if self.boots > 0 { "Pending" } else { "Running" },
            tags,
            sent,
            region: REGION,
            is_protected: false,
            address: format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255),
            hidden: self.hides,
            boots: self.boots,
            lingers: None,
        };
        self.instances.insert(id.clone(), instance);
        id
    }

    /// An answer, which is checked against the description.
    fn ok(&self, action: &str, mut answer: Value) -> Reply {
        answer["RequestId"] = "473469C7-AA6F-4DC5-B3DB-A3DC0DE3C83E".into();
        self.answers.check(action, &answer).unwrap();
        Reply { status: 200, body: answer.to_string() }
    }

    fn refuse(&mut self, problem: String) -> Reply {
        let reply = Self::error(400, "InvalidParameter", &problem);
        self.violations.push(problem);
        reply
    }

    fn run(&mut self, parameters: &Parameters) -> Reply {
        let token = parameters.get("ClientToken").cloned().unwrap_or_default();
        if let Some((earlier, reply)) = self.tokens.get(&token) {
            return if earlier == parameters {
                reply.clone()
            } else {
                Self::error(400, "IdempotentParameterMismatch", "the token was used with other parameters")
            };
        }
        let reply = self.run_once(parameters);
        if !token.is_empty() {
            self.tokens.insert(token, (parameters.clone(), reply.clone()));
        }
        reply
    }

    fn run_once(&mut self, parameters: &Parameters) -> Reply {
        let text = |name: &str| parameters.get(name).map(String::as_str).unwrap_or_default();
        let known = [
            ("ImageId", IMAGE, "InvalidImageId.NotFound"),
            ("SecurityGroupId", GROUP, "InvalidSecurityGroupId.NotFound"),
            ("VSwitchId", SWITCH, "InvalidVSwitchId.NotFound"),
            ("ZoneId", ZONE, "InvalidZoneId.NotFound"),
            ("KeyPairName", KEY_PAIR, "InvalidKeyPairName.NotFound"),
        ];
        for (name, value, code) in known {
            if !["", value].contains(&text(name)) {
                return Self::error(404, code, &format!("the specified {name} does not exist"));
            }
        }
        if ![TYPE, LARGE].contains(&text("InstanceType")) {
            return Self::error(
                403,
                "InvalidInstanceType.ValueNotSupported",
                "the specified InstanceType is not permitted",
            );
        }
        if self.stock == 0 {
            return Self::error(403, "OperationDenied.NoStock", "the resource is sold out in the specified zone");
        }
        if self.addresses == 0 {
            return Self::error(400, "QuotaExceeded.PrivateIpAddress", "not enough private addresses in this vSwitch");
        }
        self.stock -= 1;
        self.addresses -= 1;
        let tags = tags_of(parameters).into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect();
        let id = self.create(text("InstanceName"), tags, parameters.clone());
        self.ok("RunInstances", json!({"OrderId": "", "InstanceIdSets": {"InstanceIdSet": [id]}}))
    }

    fn describe(&mut self, parameters: &Parameters) -> Reply {
        let is_dry_run = is_true(parameters, "DryRun");
        if self.is_blind && is_dry_run {
            return Self::error(403, "Forbidden.RAM", "user not authorized to operate on the specified resource");
        }
        if is_dry_run {
            return Self::error(400, "DryRunOperation", "the request would have succeeded");
        }
        let ids = parameters.get("InstanceIds").filter(|ids| !ids.is_empty());
        let ids: Option<Vec<String>> = ids.map(|ids| serde_json::from_str(ids).unwrap());
        if self.refused_id.is_some_and(|refused| ids.iter().flatten().any(|id| id == refused)) {
            return Self::error(400, "InvalidInstanceId.Malformed", "an ID is malformed");
        }
        let tags = tags_of(parameters);
        let name = parameters.get("InstanceName").filter(|name| !name.is_empty());
        let status = parameters.get("Status").filter(|status| !status.is_empty());
        let is_blind = self.is_blind;
        let is_asked = |instance: &Instance| {
            !is_blind
                && parameters.get("RegionId").is_some_and(|region| region == instance.region)
                && ids.as_ref().is_none_or(|ids| ids.contains(&instance.id))
                && name.is_none_or(|name| matches(name, &instance.name))
                && status.is_none_or(|status| status == instance.status)
                && tags.iter().all(|(key, value)| {
                    instance.tags.get(key).is_some_and(|own| value.as_ref().is_none_or(|value| value == own))
                })
        };
        let mut found: Vec<String> =
            self.instances.values().filter(|one| is_asked(one)).map(|one| one.id.clone()).collect();
        if !tags.is_empty() {
            found.truncate(MOST_TAGGED);
        }
        let number = |name: &str| parameters.get(name).and_then(|text| text.parse::<usize>().ok());
        let asked = number("MaxResults").map_or(10, |asked| if asked < 10 { 10 } else { asked });
        let size = asked.min(self.page);
        // Of another list it would be another token.
        let filter: String = parameters
            .iter()
            .filter(|(name, _)| *name != "NextToken")
            .map(|(_, value)| value.len().to_string())
            .collect();
        let first = match parameters.get("NextToken").filter(|token| !token.is_empty()) {
            None => 0,
            Some(token) => match token.strip_prefix(&format!("{filter}-")).and_then(|first| first.parse().ok()) {
                Some(first) => first,
                None => return Self::error(400, "InvalidParameter.NextToken", "the token is of another list"),
            },
        };
        if self.fails_at_page == Some(first / size + 1) {
            return Self::error(400, "UnexpectedPage", "the page cannot be shown");
        }
        let page: Vec<String> = found.iter().skip(first).take(size).cloned().collect();
        let next = first + size;
        // Only pages by number of results have tokens.
        let next = if next < found.len() && number("MaxResults").is_some() {
            format!("{filter}-{next}")
        } else {
            String::new()
        };
        let shown: Vec<Value> = page.iter().filter_map(|id| self.show(id)).collect();
        self.ok("DescribeInstances", json!({"Instances": {"Instance": shown}, "NextToken": next, "TotalCount": 0}))
    }

    /// A VM in the form of the API, if it is shown. Each look at it takes it further.
    fn show(&mut self, id: &str) -> Option<Value> {
        let instance = self.instances.get_mut(id)?;
        if instance.hidden > 0 {
            instance.hidden -= 1;
            return None;
        }
        let tags = instance.tags.iter().map(|(key, value)| json!({"TagKey": key, "TagValue": value}));
        let shown = json!({
            "InstanceId": id, "InstanceName": instance.name, "Status": instance.status, "RegionId": REGION, "ZoneId": ZONE,
            "InstanceType": instance.sent.get("InstanceType"), "ImageId": IMAGE, "InstanceNetworkType": "vpc",
            "CreationTime": "2026-11-01T00:00Z", "Tags": {"Tag": tags.collect::<Vec<_>>()},
            "VpcAttributes": {
                "VpcId": VPC, "VSwitchId": SWITCH, "NatIpAddress": "", "PrivateIpAddress": {"IpAddress": [instance.address]},
            },
            "InnerIpAddress": {"IpAddress": []}, "PublicIpAddress": {"IpAddress": ["198.51.100.7"]},
            "EipAddress": {"IpAddress": "", "AllocationId": ""}, "OperationLocks": {"LockReason": []},
            "NetworkInterfaces": {"NetworkInterface": [{
                "NetworkInterfaceId": "eni-1", "PrimaryIpAddress": instance.address,
                "Ipv6Sets": {"Ipv6Set": [{"Ipv6Address": "2408:4000::1"}]},
            }]},
        });
        instance.boots = instance.boots.saturating_sub(1);
        instance.status = match (instance.status, instance.boots) {
            ("Pending" | "Starting", 0) => "Running",
            ("Pending", _) => "Starting",
            (status, _) => status,
        };
        match &mut instance.lingers {
            Some(0) => drop(self.instances.remove(id)),
            Some(left) => *left -= 1,
            None => {}
        }
        Some(shown)
    }

    fn delete(&mut self, parameters: &Parameters) -> Reply {
        let id = &parameters["InstanceId"];
        let Some(instance) = self.instances.get_mut(id) else {
            return Self::error(404, "InvalidInstanceId.NotFound", "the specified InstanceId does not exist");
        };
        if instance.is_protected {
            return Self::error(403, "InvalidOperation.DeletionProtection", "the instance is protected");
        }
        let is_forced = is_true(parameters, "Force");
        match instance.status {
            "Stopped" => {}
            "Running" if is_forced => {}
            "Pending" => {
                return Self::error(403, "IncorrectInstanceStatus.Initializing", "the instance is being created");
            }
            _ => {
                return Self::error(
                    403,
                    "IncorrectInstanceStatus",
                    "the current status does not support this operation",
                );
            }
        }
        if self.lingers > 0 {
            (instance.status, instance.lingers) = ("Stopping", Some(self.lingers - 1));
        } else {
            self.instances.remove(id);
        }
        self.ok("DeleteInstance", json!({}))
    }

    fn tag(&mut self, parameters: &Parameters) -> Reply {
        let Some(instance) = self.instances.get_mut(&parameters["ResourceId.1"]) else {
            return Self::error(404, "InvalidResourceId.NotFound", "the specified ResourceIds are not found");
        };
        instance.tags.extend(tags_of(parameters).into_iter().map(|(key, value)| (key, value.unwrap_or_default())));
        self.ok("TagResources", json!({}))
    }

    fn untag(&mut self, parameters: &Parameters) -> Reply {
        let Some(instance) = self.instances.get_mut(&parameters["ResourceId.1"]) else {
            return Self::error(404, "InvalidResourceId.NotFound", "the specified ResourceIds are not found");
        };
        for (name, key) in parameters {
            if name.starts_with("TagKey.") {
                instance.tags.remove(key);
            }
        }
        self.ok("UntagResources", json!({}))
    }

    /// A list with a resource, if it is asked for and there.
    fn resource(&self, action: &str, parameters: &Parameters) -> Reply {
        let is = |field: &'static str, parameter: &str, id: &str| {
            let asked = parameters.get(parameter).map(String::as_str);
            let list = json!([id]).to_string();
            let is_asked = asked.is_none_or(|asked| asked == id || asked == list);
            is_asked && !self.absent.contains(&field)
        };
        let some = |is_there: bool, value: Value| if is_there { json!([value]) } else { json!([]) };
        let answer = match action {
            "DescribeImages" => {
                let image =
                    json!({"ImageId": IMAGE, "OSNameEn": "Ubuntu 24.04 64 bit", "Size": 20, "Status": "Available"});
                json!({"Images": {"Image": some(is("imageID", "ImageId", IMAGE), image)}})
            }
            "DescribeInstanceTypes" => {
                let instance_type =
                    json!({"InstanceTypeId": TYPE, "CpuCoreCount": 2, "MemorySize": 8.0, "CpuArchitecture": "X86"});
                json!({"InstanceTypes": {"InstanceType": some(is("instanceType", "InstanceTypes.1", TYPE), instance_type)}})
            }
            "DescribeVSwitches" => {
                let switch = json!({
                    "VSwitchId": SWITCH, "VpcId": VPC, "ZoneId": ZONE, "AvailableIpAddressCount": self.addresses, "Status": "Available",
                });
                json!({"VSwitches": {"VSwitch": some(is("vSwitchID", "VSwitchId", SWITCH), switch)}})
            }
            "DescribeSecurityGroups" => {
                let vpc = if self.absent.contains(&"vpc") { "vpc-other" } else { VPC };
                let group = json!({"SecurityGroupId": GROUP, "VpcId": vpc});
                json!({"SecurityGroups": {"SecurityGroup": some(is("securityGroupID", "SecurityGroupIds", GROUP), group)}})
            }
            "DescribeKeyPairs" => {
                let key = json!({"KeyPairName": KEY_PAIR});
                json!({"KeyPairs": {"KeyPair": some(is("keyPairName", "KeyPairName", KEY_PAIR), key)}})
            }
            _ => {
                let types: &[&str] = if self.absent.contains(&"offer") { &[] } else { &[TYPE, LARGE] };
                let zone = json!({
                    "ZoneId": ZONE, "AvailableInstanceTypes": {"InstanceTypes": types},
                    "AvailableDiskCategories": {"DiskCategories": ["cloud_essd", "cloud_efficiency"]},
                });
                json!({"Zones": {"Zone": some(!self.absent.contains(&"zoneID"), zone)}})
            }
        };
        self.ok(action, answer)
    }

    /// The parameters of a request that fits the description.
    fn parameters(&self, action: &str, request: &Request) -> Result<Parameters, String> {
        let mut found = Parameters::new();
        for (name, value) in pairs(&request.query) {
            self.check(action, &name, &value)?;
            if found.insert(name.clone(), value).is_some() {
                return Err(format!("{action}: {name} is given twice"));
            }
        }
        let required =
            self.description[action].as_object().into_iter().flatten().filter(|(_, one)| one["required"] == true);
        for (name, schema) in required {
            let name = if schema["type"] == "array" { format!("{name}.1") } else { name.clone() };
            if !found.keys().any(|given| *given == name || given.starts_with(&format!("{name}."))) {
                return Err(format!("{action}: {name} is required"));
            }
        }
        if request.method != "POST" || request.path != "/" || !request.body.is_empty() {
            return Err(format!("{action}: expected POST / without a body"));
        }
        if request.headers.get("x-acs-version").is_none_or(|version| version != "2014-05-26") {
            return Err(format!("{action}: expected version 2014-05-26"));
        }
        match action {
            "RunInstances" => check_order(&found)?,
            "DescribeInstances" => check_ids(&found)?,
            _ => {}
        }
        Ok(found)
    }

    /// Checks a parameter, such as `Tag.1.Key`, which is a field of an item of a list.
    fn check(&self, action: &str, name: &str, value: &str) -> Result<(), String> {
        let problem = |text: &str| Err(format!("{action}: {name}={value}: {text}"));
        let all = &self.description[action];
        let mut parts = name.split('.');
        let mut schema = &all[name];
        if schema.is_null() {
            schema = &all[parts.next().unwrap_or_default()];
            if schema["type"] == "array" {
                let number = parts.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
                if number < 1 || number > schema["maxItems"].as_u64().unwrap_or(u64::MAX) {
                    return problem("it has no such number");
                }
                schema = &schema["items"];
            }
            for part in parts {
                schema = &schema["properties"][part];
            }
        }
        let fits = match schema["type"].as_str() {
            Some("string") => true,
            // Alibaba Cloud's client for Python sends `True`.
            Some("boolean") => value.to_ascii_lowercase().parse::<bool>().is_ok(),
            Some("number") => value.parse::<f64>().is_ok(),
            Some("integer") => value.parse::<i64>().is_ok_and(|number| {
                schema["minimum"].as_i64().is_none_or(|least| number >= least)
                    && schema["maximum"].as_i64().is_none_or(|most| number <= most)
            }),
            _ => return problem("it is unknown"),
        };
        if fits { Ok(()) } else { problem("it has another type or range") }
    }

    /// Checks the signature of a request.
    fn authenticate(&mut self, request: &Request) -> Result<(), Reply> {
        let header = |name: &str| request.headers.get(name).map(String::as_str).unwrap_or_default();
        let fields = header("authorization").strip_prefix("ACS3-HMAC-SHA256 ").unwrap_or_default();
        let fields: BTreeMap<&str, &str> = fields.split(',').filter_map(|field| field.split_once('=')).collect();
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        if field("Credential") != KEY_ID {
            return Err(Self::error(404, "InvalidAccessKeyId.NotFound", "the specified access key is not found"));
        }
        let signed: Vec<&str> = field("SignedHeaders").split(';').collect();
        let must =
            request.headers.keys().map(String::as_str).filter(|name| *name == "host" || name.starts_with("x-acs-"));
        let is_complete = must.into_iter().all(|name| signed.contains(&name)) && signed.is_sorted();
        let headers: String = signed.iter().map(|name| format!("{name}:{}\n", header(name).trim())).collect();
        let query: BTreeMap<String, String> =
            pairs(&request.query).into_iter().map(|(name, value)| (escaped(&name), escaped(&value))).collect();
        let query = query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
        let body = hex(digest::digest(&digest::SHA256, request.body.as_bytes()).as_ref());
        let canonical = [&request.method, "/", &query, &headers, field("SignedHeaders"), &body].join("\n");
        let text = format!("ACS3-HMAC-SHA256\n{}", hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref()));
        let expected =
            hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY_SECRET.as_bytes()), text.as_bytes()).as_ref());
        if !is_complete || header("x-acs-content-sha256") != body || field("Signature") != expected {
            return Err(Self::error(400, "SignatureDoesNotMatch", "the specified signature does not match"));
        }
        let date: Option<Timestamp> = header("x-acs-date").parse().ok();
        if date.is_none_or(|date| Timestamp::now().duration_since(date).as_secs().abs() > LIFETIME) {
            return Err(Self::error(400, "InvalidTimeStamp.Expired", "the specified time stamp is expired"));
        }
        if !self.nonces.insert(header("x-acs-signature-nonce").to_owned()) {
            return Err(Self::error(400, "SignatureNonceUsed", "the specified nonce was used already"));
        }
        Ok(())
    }
}

impl FakeCloud for Ecs {
    fn call(&self, request: &Request) -> &'static str {
        let action = request.headers.get("x-acs-action").map(String::as_str).unwrap_or_default();
        ACTIONS.into_iter().find(|name| *name == action).unwrap_or("unknown")
    }

    fn answer(&mut self, request: &Request) -> Reply {
        if let Err(reply) = self.authenticate(request) {
            return reply;
        }
        if request.headers.get("accept").is_none_or(|types| !types.contains("json")) {
            return Reply { status: 200, body: "<?xml version='1.0' encoding='UTF-8'?><Response/>".to_owned() };
        }
        let action = self.call(request);
        let parameters = match self.parameters(action, request) {
            Ok(parameters) => parameters,
            Err(problem) => return self.refuse(problem),
        };
        if parameters.get("RegionId").is_some_and(|region| region != REGION) {
            return Self::error(404, "InvalidRegionId.NotFound", "the RegionId does not exist");
        }
        match action {
            "RunInstances" => self.run(&parameters),
            "DescribeInstances" => self.describe(&parameters),
            "DeleteInstance" => self.delete(&parameters),
            "TagResources" => self.tag(&parameters),
            "UntagResources" => self.untag(&parameters),
            _ => self.resource(action, &parameters),
        }
    }
}

fn is_true(parameters: &Parameters, name: &str) -> bool {
    parameters.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The names and values in a query.
pub fn pairs(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// As in RFC 3986.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name matches a pattern, in which `*` is any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(index, _)| index).chain([tail.len()]).any(|index| matches(rest, &tail[index..]))
        }),
    }
}

/// The tags in the parameters of a request. A filter may have a key alone.
fn tags_of(parameters: &Parameters) -> BTreeMap<String, Option<String>> {
    let keys =
        parameters.iter().filter_map(|(name, key)| Some((name.strip_prefix("Tag.")?.strip_suffix(".Key")?, key)));
    keys.map(|(number, key)| (key.clone(), parameters.get(&format!("Tag.{number}.Value")).cloned())).collect()
}

/// Checks the rules that the description has only in words.
fn check_order(parameters: &Parameters) -> Result<(), String> {
    let text = |name: &str| parameters.get(name).map(String::as_str).unwrap_or_default();
    let tags = tags_of(parameters);
    if tags.len() > MOST_TAGS
        || tags.iter().any(|(key, _)| key.is_empty() || key.starts_with("acs:") || key.starts_with("aliyun"))
    {
        return Err(format!("RunInstances: wrong tags {tags:?}"));
    }
    let token = text("ClientToken");
    if token.len() > 64 || !token.is_ascii() {
        return Err(format!("RunInstances: wrong token {token}"));
    }
    let name = text("InstanceName");
    if !(2..=128).contains(&name.len()) || !name.starts_with(char::is_alphabetic) || name.contains(['[', '*']) {
        return Err(format!("RunInstances: wrong name {name}"));
    }
    if STANDARD.decode(text("UserData")).map_or(true, |data| data.len() > MOST_USER_DATA) {
        return Err("RunInstances: wrong user data".to_owned());
    }
    let sizes = parameters.iter().filter(|(name, _)| name.ends_with(".Size"));
    if let Some((name, _)) = sizes.into_iter().find(|(_, size)| size.parse::<u32>().map_or(true, |size| size < 1)) {
        return Err(format!("RunInstances: wrong {name}"));
    }
    let local = parameters.iter().filter(|(_, value)| *value == "ephemeral_ssd");
    let mut kept = local.map(|(name, _)| name.replace("Category", "DeleteWithInstance"));
    if let Some(name) = kept.find(|name| parameters.contains_key(name)) {
        return Err(format!("RunInstances: {name} of a local disk"));
    }
    Ok(())
}

fn check_ids(parameters: &Parameters) -> Result<(), String> {
    let Some(ids) = parameters.get("InstanceIds") else { return Ok(()) };
    match serde_json::from_str::<Vec<String>>(ids) {
        Ok(ids) if ids.len() <= MOST_IDS => Ok(()),
        _ => Err(format!("DescribeInstances: wrong InstanceIds {ids}")),
    }
}
