//! A vCenter: govmomi's simulator in another process, behind a proxy that keeps a log and lets calls fail.
//!
//! The program with the simulators is started once for a process of tests, and ends with it. Each vCenter is a simulator with an
//! inventory: a cluster `DC0_C0` with two hosts, a host `DC0_H0`, two datastores, a storage pod, a distributed port group, a folder
//! `workers`, and templates.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, COOKIE, SET_COOKIE},
    },
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::kit::server::{Fault, Reply};

pub const USER: &str = "administrator@vsphere.local";
pub const PASSWORD: &str = "hunter2-of-vsphere";

/// The program with the simulators.
struct Program {
    /// Where it is controlled.
    address: String,
    /// It ends when this does.
    _input: ChildStdin,
    _process: Child,
}

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let script = folders.find_map(|folder| Some(folder.join("hack/vsphere")).filter(|path| path.exists())).unwrap();
        let mut command = Command::new(script);
        let mut process = command.arg("run").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("hack/vsphere run: {line}")).to_owned();
        Program { address, _input: process.stdin.take().unwrap(), _process: process }
    })
}

/// Sends a request to the program.
fn control(method: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(&program().address).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{method} {path}: {answer}");
    serde_json::from_str(body).unwrap()
}

/// A VM as the simulator shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Vm {
    pub name: String,
    #[serde(rename = "UUID")]
    pub uuid: String,
    pub folder: String,
    pub power: String,
    #[serde(rename = "GuestID")]
    pub guest_id: String,
    pub datastore: String,
    pub host: String,
    pub pool: String,
    pub network: String,
    pub nic: String,
    pub version: String,
    #[serde(rename = "CPUs")]
    pub cpus: i64,
    #[serde(rename = "MemoryMB")]
    pub memory: i64,
    #[serde(rename = "DiskGB")]
    pub disk: i64,
    pub is_reserved: bool,
    #[serde(rename = "HasDiskUUID")]
    pub has_disk_uuid: bool,
    pub fields: BTreeMap<String, String>,
    pub extra: BTreeMap<String, String>,
    pub properties: BTreeMap<String, String>,
    /// The paths of their files.
    pub disks: Vec<String>,
}

/// How a vCenter is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Their number.
    pub datacenters: usize,
    /// So many of the first datacenters are named `DC0`, each in a folder: `F0/DC0`, `F1/DC0`.
    pub folders: usize,
    /// Without TLS. With it there is no proxy.
    pub is_plain: bool,
    /// Most objects in an answer; 0 for as many as the client requests.
    pub page: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { datacenters: 1, folders: 0, is_plain: true, page: 0 }
    }
}

/// The log and the faults of a proxy.
#[derive(Default)]
pub struct Settings {
    /// Call and body, without those of logging out.
    pub log: Vec<(String, String)>,
    /// Calls of the name fail so, this many times.
    pub faults: Vec<(&'static str, Fault, usize)>,
    /// One of ten calls fails, in these ways.
    pub storm: Vec<Fault>,
    /// Every n-th call of the name fails so.
    pub fails_every: Option<(&'static str, usize, Fault)>,
    /// Calls that are carried out later.
    pub late: usize,
    /// How many sessions were logged out.
    pub logged_out: usize,
}

impl Settings {
    pub fn count(&self, call: &str) -> usize {
        self.log.iter().filter(|(name, _)| name == call).count()
    }

    fn take_fault(&mut self, call: &str) -> Option<Fault> {
        if let Some((name, every, fault)) = &self.fails_every
            && *name == call
            && self.count(call).is_multiple_of(*every)
        {
            return Some(fault.clone());
        }
        let number = self.log.len();
        if (number.wrapping_mul(2_654_435_761) / 128).is_multiple_of(10) && !self.storm.is_empty() {
            return self.storm.get(number % self.storm.len()).cloned();
        }
        let fault = self.faults.iter_mut().find(|(name, _, left)| *name == call && *left > 0)?;
        fault.2 -= 1;
        Some(fault.1.clone())
    }
}

/// A vCenter.
pub struct VCenter {
    number: u64,
    /// It ends with this, unless it is shared.
    own: Option<u64>,
    /// For the Secret of a class.
    pub host: String,
    pub settings: Arc<Mutex<Settings>>,
}

impl VCenter {
    pub async fn start(options: Options) -> Self {
        let Options { datacenters, folders, is_plain, page } = options;
        let wanted = json!({"Datacenters": datacenters, "Folders": folders, "Plain": is_plain, "Page": page});
        let made = control("POST", "/vcenters", &wanted);
        let (number, host) = (made["number"].as_u64().unwrap(), made["host"].as_str().unwrap().to_owned());
        let (own, settings) = (Some(number), Arc::default());
        if is_plain { Self::behind_proxy(number, own, &host).await } else { Self { number, own, host, settings } }
    }

    /// One that all callers of a thread share, each behind a proxy.
    pub async fn shared() -> Self {
        thread_local!(static SHARED: OnceCell<(u64, String)> = const { OnceCell::new() });
        let (number, host) = SHARED.with(|shared| {
            let start = || {
                let made = control("POST", "/vcenters", &json!({"Plain": true}));
                (made["number"].as_u64().unwrap(), made["host"].as_str().unwrap().to_owned())
            };
            shared.get_or_init(start).clone()
        });
        Self::behind_proxy(number, None, &host).await
    }

    async fn behind_proxy(number: u64, own: Option<u64>, host: &str) -> Self {
        mcm_driver::tls::use_ring();
        let settings = Arc::<Mutex<Settings>>::default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let proxy = Proxy { url: format!("http://{host}/sdk"), client, settings: Arc::clone(&settings) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(handle).with_state(proxy);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { number, own, host, settings }
    }

    /// All VMs but templates.
    pub fn vms(&self) -> Vec<Vm> {
        self.vms_named("")
    }

    /// All VMs whose names begin so.
    pub fn vms_named(&self, prefix: &str) -> Vec<Vm> {
        serde_json::from_value(self.shown(prefix)["vms"].clone()).unwrap()
    }

    /// How many were ever created.
    pub fn created(&self) -> u64 {
        self.shown("none")["created"].as_u64().unwrap()
    }

    fn shown(&self, prefix: &str) -> Value {
        control("GET", &self.path(&format!("vms?prefix={prefix}")), &Value::Null)
    }

    /// Creates a VM by hand in the folder `workers`; returns its UUID.
    pub fn create(&self, name: &str, fields: &[(&str, &str)], is_off: bool) -> String {
        self.copy("", name, fields, is_off)
    }

    /// Creates a VM by hand in a folder below `workers`, such as `/pool`; returns its UUID.
    pub fn create_in(&self, folder: &str, name: &str, fields: &[(&str, &str)]) -> String {
        let fields: BTreeMap<_, _> = fields.iter().copied().collect();
        self.made(&json!({"Name": name, "Folder": folder, "Fields": fields}))
    }

    /// Clones a VM in the folder `workers` by hand, with its extra configuration; returns the UUID of the copy.
    pub fn copy(&self, of: &str, name: &str, fields: &[(&str, &str)], is_off: bool) -> String {
        let fields: BTreeMap<_, _> = fields.iter().copied().collect();
        self.made(&json!({"Name": name, "CopyOf": of, "Fields": fields, "IsOff": is_off}))
    }

    fn made(&self, wanted: &Value) -> String {
        let made = control("POST", &self.path("vms"), wanted);
        made["uuid"].as_str().unwrap().to_owned()
    }

    /// Makes a disk with a file at a path such as `[LocalDS_0] kubevols/a.vmdk`, and attaches it to a VM.
    pub fn attach(&self, uuid: &str, path: &str) {
        control("POST", &self.path("disks"), &json!({"UUID": uuid, "Path": path}));
    }

    /// A datastore has this file.
    pub fn has_file(&self, path: &str) -> bool {
        control("POST", &self.path("files"), &json!({"Path": path})).as_bool().unwrap()
    }

    /// Removes a VM.
    pub fn end(&self, uuid: &str) {
        control("DELETE", &self.path(&format!("vms/{uuid}")), &Value::Null);
    }

    /// Changes how the next clones go: `CloneFault`, `CloneTime` in milliseconds, `HasNoAddress`.
    pub fn change(&self, settings: &Value) {
        control("POST", &self.path("change"), settings);
    }

    /// Ends all sessions; returns how many there were.
    pub fn expire(&self) -> u64 {
        control("DELETE", &self.path("sessions"), &Value::Null).as_u64().unwrap()
    }

    fn path(&self, what: &str) -> String {
        format!("/vcenters/{}/{what}", self.number)
    }
}

impl Drop for VCenter {
    fn drop(&mut self) {
        if let Some(number) = self.own.filter(|_| !std::thread::panicking()) {
            control("DELETE", &format!("/vcenters/{number}"), &Value::Null);
        }
    }
}

/// An error of vCenter.
pub fn fault(name: &str, text: &str) -> Reply {
    let body = format!(
        r#"<?xml version="1.0"?><e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><e:Body><e:Fault><faultcode>ServerFaultCode</faultcode><faultstring>{text}</faultstring><detail><{name}Fault xmlns="urn:vim25" xsi:type="{name}"/></detail></e:Fault></e:Body></e:Envelope>"#
    );
    Reply { status: 500, body }
}

/// The call that an envelope makes: the method, or what a look at properties is for.
fn call_of(envelope: &str) -> &str {
    let method = envelope.split_once("Body><").map_or("", |(_, rest)| rest);
    let method = method.split([' ', '>', '/']).next().unwrap_or_default();
    let method = method.rsplit(':').next().unwrap_or_default();
    let is_look = |part: &str| method == "RetrievePropertiesEx" && envelope.contains(part);
    match method {
        _ if is_look(r#"<obj type="Task">"#) => "task",
        _ if is_look("<pathSet>customValue</pathSet>") => "look",
        _ if is_look("<pathSet>config.extraConfig</pathSet>") => "markers",
        _ if is_look("<pathSet>config.files.vmPathName</pathSet>") => "disks",
        _ if is_look("<pathSet>config.hardware.device</pathSet>") => "template",
        method => method,
    }
}

#[derive(Clone)]
struct Proxy {
    url: String,
    client: reqwest::Client,
    settings: Arc<Mutex<Settings>>,
}

impl Proxy {
    async fn carry_out(self, headers: HeaderMap, body: String) -> Response {
        let mut request = self.client.post(&self.url).body(body);
        for name in [CONTENT_TYPE.as_str(), COOKIE.as_str(), "soapaction"] {
            if let Some(value) = headers.get(name) {
                request = request.header(name, value.as_bytes());
            }
        }
        let answer = request.send().await.unwrap();
        let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
        let mut headers = HeaderMap::new();
        for value in answer.headers().get_all("set-cookie") {
            headers.append(SET_COOKIE, value.as_bytes().try_into().unwrap());
        }
        (status, headers, answer.text().await.unwrap()).into_response()
    }
}

async fn handle(State(proxy): State<Proxy>, headers: HeaderMap, body: Bytes) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let call = call_of(&body).to_owned();
    let fault = {
        let mut settings = proxy.settings.lock();
        if call == "Logout" {
            settings.logged_out += 1;
            None
        } else {
            settings.log.push((call.clone(), body.clone()));
            let fault = settings.take_fault(&call);
            settings.late += usize::from(matches!(fault, Some(Fault::Late(_) | Fault::LostAndLate(_))));
            fault
        }
    };
    match fault {
        None => proxy.carry_out(headers, body).await,
        Some(Fault::LostAnswer) => {
            proxy.carry_out(headers, body).await;
            cut()
        }
        Some(Fault::CarriedOut(reply)) => {
            proxy.carry_out(headers, body).await;
            in_xml(reply)
        }
        Some(Fault::Late(pause)) => {
            let late = tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let settings = Arc::clone(&proxy.settings);
                let answer = proxy.carry_out(headers, body).await;
                settings.lock().late -= 1;
                answer
            });
            late.await.unwrap()
        }
        Some(Fault::LostAndLate(pause)) => {
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let settings = Arc::clone(&proxy.settings);
                proxy.carry_out(headers, body).await;
                settings.lock().late -= 1;
            });
            cut()
        }
        Some(Fault::Slow(pause)) => {
            let answer = proxy.carry_out(headers, body).await;
            tokio::time::sleep(pause).await;
            answer
        }
        Some(Fault::TimeOut) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        Some(Fault::Endless) => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            Body::from_stream(futures::stream::repeat_with(move || Ok::<_, io::Error>(chunk.clone()))).into_response()
        }
        Some(Fault::Malformed) => "this is not XML".into_response(),
        Some(Fault::Error(reply) | Fault::ErrorWith(reply, _)) => in_xml(reply),
        Some(Fault::Status(status)) => (StatusCode::from_u16(status).unwrap(), "<html></html>").into_response(),
    }
}

/// An answer that breaks off.
fn cut() -> Response {
    Body::from_stream(futures::stream::iter([Ok("<"), Err(io::Error::other("cut"))])).into_response()
}

fn in_xml(reply: Reply) -> Response {
    (StatusCode::from_u16(reply.status).unwrap(), [(CONTENT_TYPE, "text/xml")], reply.body).into_response()
}
