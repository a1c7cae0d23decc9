//! EC2 and STS in this process, behind HTTP: what the SDK really sends and reads. It remembers tokens, evaluates filters,
//! and fails as told.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::post,
};
use jiff::{SignedDuration, Timestamp, civil, fmt::rfc2822, tz::TimeZone};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::fake_secrets::{self, FakeSecret};

/// Parameters of a request.
pub(super) type Params = BTreeMap<String, String>;

/// A VM.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeInstance {
    pub id: String,
    pub state: &'static str,
    pub token: String,
    pub tags: BTreeMap<String, String>,
    pub dns_name: String,
    pub reason: Option<(&'static str, &'static str)>,
    pub interfaces: Vec<FakeInterface>,
    /// So many look-ups do not show it.
    pub hidden: usize,
    /// So many look-ups show it without a name.
    pub nameless: usize,
    /// So many look-ups show it while it ends. `None` if it never ends.
    pub lingers: Option<usize>,
    /// Its region, if it is not that of the class.
    pub region: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FakeInterface {
    pub id: String,
    pub device_index: usize,
    pub kind: String,
    pub source_dest_check: bool,
    pub prefixes: usize,
}

/// A bucket of requests: how many it holds, how many come each second, how many there are, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub most: f64,
    pub per_second: f64,
    pub tokens: f64,
    pub filled: Instant,
}

impl Bucket {
    fn is_empty(&mut self) -> bool {
        let now = Instant::now();
        self.tokens += now.duration_since(self.filled).as_secs_f64() * self.per_second;
        (self.tokens, self.filled) = (self.tokens.min(self.most), now);
        let is_empty = self.tokens < 1.0;
        self.tokens -= if is_empty { 0.0 } else { 1.0 };
        is_empty
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is carried out, and the answer breaks off.
    LostAnswer,
    /// No answer.
    Timeout,
    /// An answer without end.
    Endless,
    /// An answer that is no XML.
    Malformed,
    /// Error of EC2, with its HTTP status.
    Error(&'static str, u16),
    /// Error of something before EC2.
    Status(u16),
    /// It is carried out after this time, whether the client still waits or not.
    Late(Duration),
    /// The answer breaks off at once, and it is carried out after this time.
    LostAndLate(Duration),
    /// It is carried out at once, and its answer comes after this time.
    Slow(Duration),
}

#[derive(Default)]
pub(super) struct Cloud {
    pub instances: BTreeMap<String, FakeInstance>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, FakeSecret>,
    tokens: HashMap<String, (String, Params)>,
    pub requests: Vec<(String, Params)>,
    pub signers: BTreeSet<String>,
    /// Each call of the action fails so, this many times.
    pub faults: Vec<(&'static str, Fault, usize)>,
    /// Four of ten calls fail, in these ways.
    pub storm: Vec<Fault>,
    /// Every n-th RunInstances fails so.
    pub fails_every: Option<(usize, Fault)>,
    /// Calls that are carried out later.
    pub late: usize,
    /// A VM that is terminated ends after so many look-ups. `None`: it does not end.
    pub lingers: Option<usize>,
    /// The region for which the last request was signed.
    region: String,
    pub runs: usize,
    /// RunInstances is throttled so.
    pub bucket: Option<Bucket>,
    pub page: Option<usize>,
    pub repeats_page: bool,
    /// Each page of a list names another one.
    pub has_endless_pages: bool,
    /// The second page leads to the first.
    pub circles: bool,
    pub ignores_filters: bool,
    /// Seconds by which its clock is ahead of that of this machine.
    pub clock: i64,
    pub root_device: Option<&'static str>,
    /// Responses to reading calls, by action.
    pub answers: BTreeMap<&'static str, String>,
    /// New VMs are copies of it.
    pub template: FakeInstance,
}

impl Cloud {
    pub(super) fn alive(&self) -> Vec<&FakeInstance> {
        self.instances.values().filter(|one| is_alive(one.state)).collect()
    }

    pub(super) fn sent(&self, action: &str) -> Vec<Params> {
        self.requests.iter().filter(|(name, _)| name == action).map(|(_, params)| params.clone()).collect()
    }
}

pub(super) type Shared = Arc<Mutex<Cloud>>;

/// Serves a cloud; returns its URL.
pub(super) async fn serve(cloud: &Shared) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router(cloud);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

pub(super) fn router(cloud: &Shared) -> Router {
    Router::new().route("/", post(answer)).with_state(Arc::clone(cloud))
}

/// A response has the time of the fake, and signatures of another time are refused.
async fn answer(State(cloud): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let now = Timestamp::now() + SignedDuration::from_secs(cloud.lock().clock);
    let signed =
        headers.get("x-amz-date").map(|time| civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time.to_str().unwrap()));
    let signed = signed.map(|time| time.unwrap().to_zoned(TimeZone::UTC).unwrap().timestamp());
    let is_expired = signed.is_some_and(|time| now.duration_since(time).abs() > SignedDuration::from_mins(5));
    let mut answer = answer_in_time(&cloud, &headers, &body, is_expired).await;
    let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap();
    answer.headers_mut().insert(header::DATE, date.parse().unwrap());
    answer
}

async fn answer_in_time(cloud: &Shared, headers: &HeaderMap, body: &[u8], is_expired: bool) -> Response {
    let (action, params) = fake_secrets::request(headers, body).unwrap_or_else(|| {
        let mut params = parse(body);
        params.remove("Version");
        (params.remove("Action").unwrap(), params)
    });
    let fault = {
        let mut cloud = cloud.lock();
        cloud.requests.push((action.clone(), params.clone()));
        if let Some(signature) = headers.get("authorization").and_then(|value| value.to_str().ok()) {
            let mut scope = signature.split("Credential=").nth(1).into_iter().flat_map(|rest| rest.split('/'));
            cloud.signers.extend(scope.next().map(str::to_owned));
            cloud.region = scope.nth(1).unwrap_or_default().to_owned();
        }
        let fault =
            if is_expired { Some(Fault::Error("RequestExpired", 400)) } else { take_fault(&mut cloud, &action) };
        cloud.late += usize::from(matches!(fault, Some(Fault::Late(_) | Fault::LostAndLate(_))));
        fault
    };
    match fault {
        None => carry_out(cloud, &action, &params),
        Some(Fault::LostAnswer) => {
            carry_out(cloud, &action, &params);
            cut()
        }
        Some(Fault::Timeout) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        Some(Fault::Endless) => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            Body::from_stream(futures::stream::repeat_with(move || Ok::<_, io::Error>(chunk.clone()))).into_response()
        }
        Some(Fault::Malformed) => "this is no XML".into_response(),
        Some(Fault::Error(code, status)) => error(&action, code, status),
        Some(Fault::Status(status)) => (StatusCode::from_u16(status).unwrap(), "<html></html>").into_response(),
        Some(Fault::Late(pause)) => {
            tokio::spawn(carry_out_late(Arc::clone(cloud), action, params, pause)).await.unwrap()
        }
        Some(Fault::LostAndLate(pause)) => {
            tokio::spawn(carry_out_late(Arc::clone(cloud), action, params, pause));
            cut()
        }
        Some(Fault::Slow(pause)) => {
            let answer = carry_out(cloud, &action, &params);
            tokio::time::sleep(pause).await;
            answer
        }
    }
}

async fn carry_out_late(cloud: Shared, action: String, params: Params, pause: Duration) -> Response {
    tokio::time::sleep(pause).await;
    let answer = carry_out(&cloud, &action, &params);
    cloud.lock().late -= 1;
    answer
}

/// An answer that breaks off.
fn cut() -> Response {
    let broken = futures::stream::iter([Ok("<Run"), Err(io::Error::other("cut"))]);
    Body::from_stream(broken).into_response()
}

fn take_fault(cloud: &mut Cloud, action: &str) -> Option<Fault> {
    if action == "RunInstances" {
        cloud.runs += 1;
        if cloud.bucket.as_mut().is_some_and(Bucket::is_empty) {
            return Some(Fault::Error("RequestLimitExceeded", 503));
        }
        if let Some((_, fault)) = cloud.fails_every.filter(|(every, _)| cloud.runs.is_multiple_of(*every)) {
            return Some(fault);
        }
    }
    let number = cloud.requests.len();
    if number.wrapping_mul(2_654_435_761) / 128 % 10 < 4 && !cloud.storm.is_empty() {
        return cloud.storm.get(number % cloud.storm.len()).copied();
    }
    let fault = cloud.faults.iter_mut().find(|(name, _, left)| *name == action && *left > 0)?;
    fault.2 -= 1;
    Some(fault.1)
}

pub(super) fn parse(body: &[u8]) -> Params {
    let uri: Uri = format!("/?{}", std::str::from_utf8(body).unwrap()).parse().unwrap();
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap();
    pairs.into_iter().collect()
}

fn carry_out(cloud: &Shared, action: &str, params: &Params) -> Response {
    let mut cloud = cloud.lock();
    if params.get("DryRun").is_some_and(|value| value == "true") {
        return error(action, "DryRunOperation", 412);
    }
    if let Some(answer) = cloud.answers.get(action).filter(|_| !params.contains_key("ImageId.1")) {
        return xml(action, answer);
    }
    if let Some(answer) = fake_secrets::answer(&mut cloud.secrets, action, params) {
        return answer;
    }
    match action {
        "DescribeImages" => describe_images(&cloud, params),
        "RunInstances" => run(&mut cloud, params),
        "DescribeInstances" => describe(&mut cloud, params),
        "TerminateInstances" => terminate(&mut cloud, params),
        "CreateTags" => {
            let pair = |n: usize| {
                Some((params.get(&format!("Tag.{n}.Key"))?.clone(), params[&format!("Tag.{n}.Value")].clone()))
            };
            let tags: Vec<(String, String)> = (1..).map_while(pair).collect();
            tag(&mut cloud, action, params, |instance| instance.tags.extend(tags.clone()))
        }
        "DeleteTags" => {
            let keys: Vec<&String> = (1..).map_while(|n: usize| params.get(&format!("Tag.{n}.Key"))).collect();
            tag(&mut cloud, action, params, |instance| instance.tags.retain(|key, _| !keys.contains(&key)))
        }
        "ModifyNetworkInterfaceAttribute" => {
            let off = params.get("SourceDestCheck.Value").is_some_and(|value| value == "false");
            change(&mut cloud, action, params, |interface| interface.source_dest_check = !off)
        }
        "AssignIpv6Addresses" => {
            let count: usize = params["Ipv6PrefixCount"].parse().unwrap();
            change(&mut cloud, action, params, |interface| interface.prefixes += count)
        }
        "AssumeRoleWithWebIdentity" => xml(
            action,
            "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>\
             <SecretAccessKey>role-secret</SecretAccessKey><SessionToken>role-session</SessionToken>\
             <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>",
        ),
        other => panic!("{other} is no call of this driver"),
    }
}

fn describe_images(cloud: &Cloud, params: &Params) -> Response {
    let id = &params["ImageId.1"];
    if id == "ami-gone" {
        return error("DescribeImages", "InvalidAMIID.NotFound", 400);
    }
    let image = match (id.as_str(), cloud.root_device.unwrap_or("/dev/xvda")) {
        ("ami-empty", _) => String::new(),
        (_, name) => format!("<item><imageId>{id}</imageId><rootDeviceName>{name}</rootDeviceName></item>"),
    };
    xml("DescribeImages", &format!("<imagesSet>{image}</imagesSet>"))
}

fn run(cloud: &mut Cloud, params: &Params) -> Response {
    let token = params["ClientToken"].clone();
    if let Some((id, others)) = cloud.tokens.get(&token) {
        if !is_alive(cloud.instances[id].state) {
            return error("RunInstances", "IdempotentInstanceTerminated", 400);
        }
        if others != params {
            return error("RunInstances", "IdempotentParameterMismatch", 400);
        }
        return xml("RunInstances", &format!("<instancesSet>{}</instancesSet>", item(&cloud.instances[id])));
    }
    let number = cloud.instances.len();
    let id = format!("i-{number:017x}");
    let mut instance = cloud.template.clone();
    instance.id = id.clone();
    instance.state = if instance.state.is_empty() { "pending" } else { instance.state };
    instance.token = token.clone();
    instance.dns_name = format!("ip-10-0-{}-{}.eu-west-1.compute.internal", number / 250, number % 250);
    instance.tags = tags(params, 1);
    if instance.tags.len() > 50 {
        return error("RunInstances", "TagLimitExceeded", 400);
    }
    for index in 1.. {
        let value = |name: &str| params.get(&format!("NetworkInterface.{index}.{name}")).cloned();
        let Some(device) = value("DeviceIndex") else { break };
        instance.interfaces.push(FakeInterface {
            id: format!("eni-{number}-{index}"),
            device_index: device.parse().unwrap(),
            kind: value("InterfaceType").unwrap_or_else(|| "interface".to_owned()),
            source_dest_check: true,
            prefixes: 0,
        });
    }
    let answer = xml("RunInstances", &format!("<instancesSet>{}</instancesSet>", item(&instance)));
    cloud.instances.insert(id.clone(), instance);
    cloud.tokens.insert(token, (id, params.clone()));
    answer
}

/// Tags of the n-th specification.
pub(super) fn tags(params: &Params, number: usize) -> BTreeMap<String, String> {
    let tag = |index: usize, part: &str| params.get(&format!("TagSpecification.{number}.Tag.{index}.{part}")).cloned();
    (1..).map_while(|index| Some((tag(index, "Key")?, tag(index, "Value")?))).collect()
}

fn describe(cloud: &mut Cloud, params: &Params) -> Response {
    let mut filters: Vec<(String, Vec<String>)> = Vec::new();
    for index in 1.. {
        let Some(name) = params.get(&format!("Filter.{index}.Name")) else { break };
        let value = |number| params.get(&format!("Filter.{index}.Value.{number}")).cloned();
        filters.push((name.clone(), (1..).map_while(value).collect()));
    }
    let (ignores, region) = (cloud.ignores_filters, cloud.region.clone());
    let mut found = Vec::new();
    for instance in cloud.instances.values_mut().filter(|one| one.region.is_none_or(|own| own == region)) {
        match &mut instance.lingers {
            Some(0) => instance.state = "terminated",
            Some(left) => *left -= 1,
            None => {}
        }
        if ignores || filters.iter().all(|(name, values)| matches(instance, name, values)) {
            if instance.hidden > 0 {
                instance.hidden -= 1;
                continue;
            }
            let mut shown = instance.clone();
            if instance.nameless > 0 {
                instance.nameless -= 1;
                shown.dns_name.clear();
            }
            found.push(shown);
        }
    }
    let first: usize = params.get("NextToken").map_or(0, |token| token.parse().unwrap());
    let page = cloud.page.unwrap_or(1000);
    let mut body = String::from("<reservationSet>");
    for instance in found.iter().skip(first).take(page) {
        write!(body, "<item><instancesSet>{}</instancesSet></item>", item(instance)).unwrap();
    }
    body.push_str("</reservationSet>");
    if cloud.repeats_page {
        body.push_str("<nextToken>1</nextToken>");
    } else if cloud.circles {
        write!(body, "<nextToken>{}</nextToken>", 1 + first % 2).unwrap();
    } else if cloud.has_endless_pages || first + page < found.len() {
        write!(body, "<nextToken>{}</nextToken>", first + page).unwrap();
    }
    xml("DescribeInstances", &body)
}

fn matches(instance: &FakeInstance, name: &str, values: &[String]) -> bool {
    let is = |value: &str| values.iter().any(|other| other == value);
    match name {
        "instance-state-name" => is(instance.state),
        "instance-id" => is(&instance.id),
        "client-token" => is(&instance.token),
        "tag-key" => instance.tags.keys().any(|key| is(key)),
        name => match name.strip_prefix("tag:") {
            Some(key) => instance.tags.get(key).is_some_and(|value| is(value)),
            None => panic!("{name} is no filter of this driver"),
        },
    }
}

fn terminate(cloud: &mut Cloud, params: &Params) -> Response {
    let lingers = cloud.lingers;
    match cloud.instances.get_mut(&params["InstanceId.1"]) {
        Some(instance) => {
            (instance.state, instance.lingers) = ("shutting-down", lingers);
            xml("TerminateInstances", "<instancesSet></instancesSet>")
        }
        None => error("TerminateInstances", "InvalidInstanceID.NotFound", 400),
    }
}

fn tag(cloud: &mut Cloud, action: &str, params: &Params, change: impl Fn(&mut FakeInstance)) -> Response {
    match cloud.instances.get_mut(&params["ResourceId.1"]) {
        Some(instance) => {
            change(instance);
            xml(action, "<return>true</return>")
        }
        None => error(action, "InvalidInstanceID.NotFound", 400),
    }
}

fn change(cloud: &mut Cloud, action: &str, params: &Params, change: impl Fn(&mut FakeInterface)) -> Response {
    let id = &params["NetworkInterfaceId"];
    let mut all = cloud.instances.values_mut().flat_map(|instance| &mut instance.interfaces);
    match all.find(|interface| interface.id == *id) {
        Some(interface) => {
            change(interface);
            xml(action, "<return>true</return>")
        }
        None => error(action, "InvalidNetworkInterfaceID.NotFound", 400),
    }
}

pub(super) fn is_alive(state: &str) -> bool {
    !["shutting-down", "terminated"].contains(&state)
}

fn item(instance: &FakeInstance) -> String {
    let FakeInstance { id, state, token, dns_name, reason, .. } = instance;
    let mut text = format!(
        "<item><instanceId>{id}</instanceId><instanceState><code>0</code><name>{state}</name></instanceState>\
         <privateDnsName>{dns_name}</privateDnsName><privateIpAddress>10.0.0.1</privateIpAddress>\
         <ipAddress>198.51.100.1</ipAddress><dnsName>ec2-198-51-100-1.example.com</dnsName>\
         <clientToken>{token}</clientToken><placement><availabilityZone>eu-west-1a</availabilityZone></placement>"
    );
    if let Some((code, message)) = reason {
        write!(text, "<stateReason><code>{code}</code><message>{message}</message></stateReason>").unwrap();
    }
    text.push_str("<tagSet>");
    for (key, value) in &instance.tags {
        write!(text, "<item><key>{key}</key><value>{value}</value></item>").unwrap();
    }
    text.push_str("</tagSet><networkInterfaceSet>");
    for FakeInterface { id, device_index, kind, source_dest_check, prefixes } in &instance.interfaces {
        let prefixes = "<item><ipv6Prefix>2001:db8::/80</ipv6Prefix></item>".repeat(*prefixes);
        write!(
            text,
            "<item><networkInterfaceId>{id}</networkInterfaceId><sourceDestCheck>{source_dest_check}</sourceDestCheck>\
             <interfaceType>{kind}</interfaceType>\
             <attachment><deviceIndex>{device_index}</deviceIndex></attachment>\
             <privateIpAddressesSet><item><privateIpAddress>10.0.0.1</privateIpAddress></item></privateIpAddressesSet>\
             <ipv6PrefixSet>{prefixes}</ipv6PrefixSet></item>"
        )
        .unwrap();
    }
    text.push_str("</networkInterfaceSet></item>");
    text
}

/// Actions of STS and IAM. Their responses have another form than those of EC2.
const NOT_OF_EC2: [&str; 3] = ["AssumeRoleWithWebIdentity", "GetCallerIdentity", "GetInstanceProfile"];

fn xml(action: &str, body: &str) -> Response {
    let body = if NOT_OF_EC2.contains(&action) {
        format!("{body}<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata>")
    } else {
        format!("<requestId>r</requestId>{body}")
    };
    format!("<{action}Response>{body}</{action}Response>").into_response()
}

fn error(action: &str, code: &str, status: u16) -> Response {
    if fake_secrets::ACTIONS.contains(&action) {
        return fake_secrets::error(code, status);
    }
    let error = format!("<Error><Code>{code}</Code><Message>as told, with AKIDEXAMPLE [and brackets</Message></Error>");
    let body = if NOT_OF_EC2.contains(&action) {
        format!("<ErrorResponse>{error}<RequestId>r</RequestId></ErrorResponse>")
    } else {
        format!("<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>")
    };
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}
