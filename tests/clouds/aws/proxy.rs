//! A proxy in front of moto. It adds features of EC2 that moto lacks: several filters with one name, tokens of
//! creations, and repeated termination. It also fails on request.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::post,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::load_balancer::Change;

/// The header with the action of a request in JSON.
const TARGET: &str = "x-amz-target";
const NO_TOPOLOGY: &str = "<DescribeInstanceTopologyResponse><instanceSet/></DescribeInstanceTopologyResponse>";

type Params = BTreeMap<String, String>;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out, and the answer breaks off.
    LostAnswer,
    /// It is carried out, and no answer comes.
    Unanswered,
    /// It is not carried out, and no answer comes.
    Timeout,
    /// The connection is cut before it is carried out.
    Cut,
    /// An answer that is not XML.
    Malformed,
    /// Error of EC2, with its HTTP status.
    Error(&'static str, u16),
    /// Error of something before EC2.
    Status(u16),
}

#[derive(Default)]
pub struct Settings {
    /// Each call of the action fails so, this many times.
    pub faults: Vec<(&'static str, Fault, usize)>,
    /// Every n-th RunInstances loses its answer.
    pub lost_every: Option<usize>,
    pub calls: BTreeMap<String, usize>,
    /// Calls that wait in vain.
    pub unanswered: usize,
    /// Changes of target groups and ends of instances that were carried out, in their order.
    pub changes: Vec<Change>,
}

/// EC2's memory of creations.
#[derive(Default)]
struct Memory {
    /// By token: the request, the instance and the answer.
    runs: HashMap<String, (Params, String, String)>,
    terminated: HashSet<String>,
}

pub struct Proxy {
    moto: String,
    http: reqwest::Client,
    pub settings: Mutex<Settings>,
    memory: Mutex<Memory>,
    /// Creations, one after the other: concurrent ones with one token create one VM.
    run: tokio::sync::Mutex<()>,
}

impl Proxy {
    /// Starts a proxy before moto; returns it with its URL.
    pub async fn start(moto: &str) -> (Arc<Self>, String) {
        let proxy = Arc::new(Self {
            moto: moto.to_owned(),
            http: reqwest::Client::new(),
            settings: Mutex::default(),
            memory: Mutex::default(),
            run: tokio::sync::Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(answer)).with_state(Arc::clone(&proxy));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (proxy, url)
    }

    /// Makes each of the next calls of an action fail.
    pub fn fail(&self, action: &'static str, fault: Fault, times: usize) {
        self.settings.lock().faults.push((action, fault, times));
    }

    pub fn heal(&self) {
        self.settings.lock().faults.clear();
    }

    /// How often an action was called.
    pub fn calls(&self, action: &str) -> usize {
        self.settings.lock().calls.get(action).copied().unwrap_or_default()
    }

    /// How often each action was called.
    pub fn all_calls(&self) -> BTreeMap<String, usize> {
        self.settings.lock().calls.clone()
    }

    /// Calls EC2 of moto directly, as a user of the same account.
    pub async fn ask(&self, params: &[(&str, &str)]) -> String {
        self.ask_service("ec2", params).await
    }

    /// Calls a service of moto directly.
    pub async fn ask_service(&self, service: &str, params: &[(&str, &str)]) -> String {
        let params: Params = params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut headers = HeaderMap::new();
        let signature = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/eu-west-1/{service}/aws4_request, \
             SignedHeaders=host, Signature=0"
        );
        headers.insert("authorization", signature.parse().unwrap());
        self.forward(&headers, &params).await.1
    }

    async fn forward(&self, headers: &HeaderMap, params: &Params) -> (StatusCode, String) {
        let mut request = self.http.post(&self.moto).body(encode(params));
        for name in ["authorization", "x-amz-date"] {
            if let Some(value) = headers.get(name) {
                request = request.header(name, value);
            }
        }
        let answer = request.header("content-type", "application/x-www-form-urlencoded").send().await.unwrap();
        let status = answer.status();
        (StatusCode::from_u16(status.as_u16()).unwrap(), answer.text().await.unwrap())
    }

    /// Calls a service whose requests are in JSON.
    async fn pass(&self, headers: &HeaderMap, body: Bytes) -> (StatusCode, String) {
        let mut request = self.http.post(&self.moto).body(body);
        for name in ["authorization", "content-type", "x-amz-date", TARGET] {
            request = request.header(name, &headers[name]);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Calls Secrets Manager of moto directly.
    pub async fn ask_secrets(&self, action: &str, input: &Value) -> Value {
        let signature = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/eu-west-1/secretsmanager/aws4_request, \
                         SignedHeaders=host, Signature=0";
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", signature),
            ("content-type", "application/x-amz-json-1.1"),
            ("x-amz-date", "20260101T000000Z"),
            (TARGET, &format!("secretsmanager.{action}")),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        serde_json::from_str(&self.pass(&headers, input.to_string().into()).await.1).unwrap()
    }

    async fn carry_out(&self, headers: &HeaderMap, action: &str, mut params: Params) -> (StatusCode, String) {
        match action {
            "RunInstances" => self.run(headers, params).await,
            "DescribeInstances" => {
                self.repair_filters(&mut params);
                self.forward(headers, &params).await
            }
            "TerminateInstances" => {
                let id = params["InstanceId.1"].clone();
                if self.memory.lock().terminated.contains(&id) {
                    return (StatusCode::OK, "<TerminateInstancesResponse></TerminateInstancesResponse>".to_owned());
                }
                let answer = self.forward(headers, &params).await;
                if answer.0.is_success() {
                    self.memory.lock().terminated.insert(id.clone());
                    self.remember(Change::Ended(id));
                }
                answer
            }
            "RegisterTargets" | "DeregisterTargets" => {
                let answer = self.forward(headers, &params).await;
                let vm = params["Targets.member.1.Id"].clone();
                if answer.0.is_success() {
                    let is_registered = action == "RegisterTargets";
                    self.remember(if is_registered { Change::Registered(vm) } else { Change::Deregistered(vm) });
                }
                answer
            }
            // moto does not have it. EC2 returns nothing for most instance types.
            "DescribeInstanceTopology" => (StatusCode::OK, NO_TOPOLOGY.to_owned()),
            _ => self.forward(headers, &params).await,
        }
    }

    fn remember(&self, change: Change) {
        self.settings.lock().changes.push(change);
    }

    /// The caller waits in vain.
    async fn no_answer(&self) -> Response {
        self.settings.lock().unanswered += 1;
        futures::future::pending().await
    }

    async fn run(&self, headers: &HeaderMap, params: Params) -> (StatusCode, String) {
        let _one_at_a_time = self.run.lock().await;
        let token = params.get("ClientToken").cloned().unwrap_or_default();
        {
            let memory = self.memory.lock();
            if let Some((others, id, answer)) = memory.runs.get(&token) {
                if memory.terminated.contains(id) {
                    return (StatusCode::BAD_REQUEST, error("IdempotentInstanceTerminated"));
                }
                if *others != params {
                    return (StatusCode::BAD_REQUEST, error("IdempotentParameterMismatch"));
                }
                return (StatusCode::OK, answer.clone());
            }
        }
        let (status, text) = self.forward(headers, &params).await;
        if status.is_success() {
            let id = text.split("<instanceId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
            self.memory.lock().runs.insert(token, (params, id, text.clone()));
        }
        (status, text)
    }

    /// moto takes the last of several filters with one name, and does not filter by token.
    fn repair_filters(&self, params: &mut Params) {
        let name = |index: usize| format!("Filter.{index}.Name");
        let value = |index: usize| format!("Filter.{index}.Value.1");
        let indexes: Vec<usize> = (1..).take_while(|index| params.contains_key(&name(*index))).collect();
        for index in indexes {
            match params[&name(index)].as_str() {
                "tag-key" => {
                    let key = params[&value(index)].clone();
                    params.insert(name(index), format!("tag:{key}"));
                    params.insert(value(index), "*".to_owned());
                }
                "client-token" => {
                    let id = self.memory.lock().runs.get(&params[&value(index)]).map(|(_, id, _)| id.clone());
                    params.insert(name(index), "instance-id".to_owned());
                    params.insert(value(index), id.unwrap_or_else(|| "i-none".to_owned()));
                }
                _ => {}
            }
        }
    }
}

async fn answer(State(proxy): State<Arc<Proxy>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(target) = headers.get(TARGET) {
        let action = target.to_str().unwrap().rsplit('.').next().unwrap().to_owned();
        *proxy.settings.lock().calls.entry(action).or_default() += 1;
        return proxy.pass(&headers, body).await.into_response();
    }
    let params = parse(&body);
    let action = params.get("Action").cloned().unwrap_or_default();
    let fault = {
        let mut settings = proxy.settings.lock();
        let count = settings.calls.entry(action.clone()).or_default();
        *count += 1;
        let count = *count;
        let is_lost = action == "RunInstances" && settings.lost_every.is_some_and(|every| count.is_multiple_of(every));
        let told = settings.faults.iter_mut().find(|(name, _, left)| *name == action && *left > 0);
        match told {
            _ if is_lost => Some(Fault::LostAnswer),
            Some(told) => {
                told.2 -= 1;
                Some(told.1)
            }
            None => None,
        }
    };
    match fault {
        None => {
            let (status, text) = proxy.carry_out(&headers, &action, params).await;
            (status, text).into_response()
        }
        Some(Fault::LostAnswer) => {
            proxy.carry_out(&headers, &action, params).await;
            cut()
        }
        Some(Fault::Unanswered) => {
            proxy.carry_out(&headers, &action, params).await;
            proxy.no_answer().await
        }
        Some(Fault::Timeout) => proxy.no_answer().await,
        Some(Fault::Cut) => cut(),
        Some(Fault::Malformed) => "this is no XML".into_response(),
        Some(Fault::Error(code, status)) => (StatusCode::from_u16(status).unwrap(), error(code)).into_response(),
        Some(Fault::Status(status)) => (StatusCode::from_u16(status).unwrap(), "<html></html>").into_response(),
    }
}

/// An answer whose connection breaks.
fn cut() -> Response {
    let broken = futures::stream::iter([Ok("<R"), Err(io::Error::other("cut"))]);
    Body::from_stream(broken).into_response()
}

fn error(code: &str) -> String {
    format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>as told</Message></Error></Errors>\
         <RequestID>r</RequestID></Response>"
    )
}

fn parse(body: &[u8]) -> Params {
    let uri: Uri = format!("/?{}", std::str::from_utf8(body).unwrap()).parse().unwrap();
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap();
    pairs.into_iter().collect()
}

fn encode(params: &Params) -> String {
    let escaped = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
                other => format!("%{other:02X}"),
            })
            .collect()
    };
    params.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect::<Vec<_>>().join("&")
}
