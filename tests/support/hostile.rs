//! API servers that try to exhaust the memory and the time of their clients.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, stream};
use serde_json::json;
use tokio::net::TcpListener;

const MIB: usize = 1 << 20;
/// Nodes whose changes a flood has.
const FLOODED: usize = 100;
/// Time between two parts of a flood.
const WAVE: Duration = Duration::from_millis(100);

/// The attack of a server on its client.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// Each page of Nodes names a next one.
    EndlessPages,
    /// A page has far more Nodes than were asked for.
    ManyNodes { mib: usize },
    /// A page has one Node with conditions without end.
    ManyValues,
    /// A watch adds Nodes without end.
    EndlessWatch,
    /// The error of a list is long.
    LongError,
    /// A large page begins and does not end.
    SlowPage,
    /// No request is answered.
    Silence,
    /// A watch delivers so many changes of the same Nodes in a second.
    Flood { events: usize },
}

/// Starts a hostile API server, for as long as the test runs. It has a thread, so that it delays no probe.
pub fn serve(attack: Attack) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let router = Router::new().fallback(answer).with_state(attack);
            axum::serve(TcpListener::from_std(listener).unwrap(), router).await
        })
    });
    url
}

async fn answer(State(attack): State<Attack>, request: Request) -> Response {
    if matches!(attack, Attack::Silence) {
        return std::future::pending().await;
    }
    let uri = request.uri();
    match uri.path() {
        "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}).to_string().into_response(),
        "/api/v1/nodes" if query(uri, "watch") == Some("true") => watch(attack),
        "/api/v1/nodes" => list(attack, uri),
        _ => "ok".into_response(),
    }
}

fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    uri.query()?
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value)
}

fn node(at: usize) -> String {
    let meta = json!({"name": format!("n{at}"), "uid": format!("u{at}"), "resourceVersion": (at + 10).to_string()});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": meta}).to_string()
}

fn list(attack: Attack, uri: &Uri) -> Response {
    const BEGIN: &str = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":["#;
    match attack {
        Attack::EndlessPages => {
            let from: usize = query(uri, "continue").and_then(|from| from.parse().ok()).unwrap_or_default();
            let size: usize = query(uri, "limit").and_then(|size| size.parse().ok()).unwrap();
            let items: Vec<String> = (from..from + size).map(node).collect();
            let next = from + size;
            let meta = format!(r#"{{"resourceVersion":"10","continue":"{next}"}}"#);
            format!(r#"{{"kind":"NodeList","metadata":{meta},"items":[{}]}}"#, items.join(",")).into_response()
        }
        Attack::ManyNodes { mib } => {
            let node = r#"{"metadata":{"name":"n1"}}"#;
            long(BEGIN, &format!("{node},"), &format!("{node}]}}"), mib)
        }
        Attack::ManyValues => {
            long(&format!(r#"{BEGIN}{{"metadata":{{"name":"n"}},"status":{{"conditions":["#), "{},", "{}]}}]}", 15)
        }
        Attack::EndlessWatch | Attack::Flood { .. } | Attack::Silence => format!("{BEGIN}]}}").into_response(),
        Attack::LongError => {
            let body = long(r#"{"kind":"Status","status":"Failure","code":500,"a":["#, "0,", "0]}", 63).into_body();
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
        Attack::SlowPage => {
            let begun = format!("{BEGIN}{}", " ".repeat(3 * MIB));
            streamed(stream::once(async { Bytes::from(begun) }).chain(stream::pending()))
        }
    }
}

fn watch(attack: Attack) -> Response {
    match attack {
        Attack::EndlessWatch => streamed(stream::iter(0..).map(|chunk: usize| {
            let event = |at| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", node(at));
            Bytes::from((chunk * 100..(chunk + 1) * 100).map(event).collect::<String>())
        })),
        Attack::Flood { events } => {
            let waves = stream::unfold(0, move |from| async move {
                tokio::time::sleep(WAVE).await;
                let until = from + events / 10;
                Some(((from..until).map(change).collect::<String>().into(), until))
            });
            streamed(waves)
        }
        _ => streamed(stream::pending()),
    }
}

/// The event of a change of one of some Nodes, which are added by their first. Its text is short work for this thread, which shares
/// the cores with the measured programs.
fn change(at: usize) -> String {
    let type_ = if at < FLOODED { "ADDED" } else { "MODIFIED" };
    let (node, version) = (at % FLOODED, at + 10);
    let meta = format!(r#"{{"name":"n{node}","uid":"u-n{node}","resourceVersion":"{version}"}}"#);
    format!("{{\"type\":\"{type_}\",\"object\":{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{meta}}}}}\n")
}

/// A text with so many MiB of repetitions.
fn long(begin: &str, repeated: &str, end: &str, mib: usize) -> Response {
    let block = Bytes::from(repeated.repeat(MIB / repeated.len()));
    let blocks = stream::repeat(block).take(mib);
    let [begin, end] = [begin, end].map(|text| stream::once(std::future::ready(Bytes::from(text.to_owned()))));
    streamed(begin.chain(blocks).chain(end))
}

fn streamed(blocks: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    Response::new(Body::from_stream(blocks.map(Ok::<_, std::io::Error>)))
}
