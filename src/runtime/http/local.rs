//! Callers without authentication that may read more than numbers: those on the loopback address, such as
//! `kubectl port-forward`. The API server authorized them to get there, or they are on this host already.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::{
    extract::{ConnectInfo, Request, connect_info::Connected},
    http::{
        HeaderMap, StatusCode,
        header::{FORWARDED, HOST},
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
    serve::IncomingStream,
};

use super::listener::LimitedListener;

/// Names of this host in requests. A page of a browser whose name was bound to the loopback address sends another one.
const HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "::1"];

/// The address of a caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(SocketAddr);

impl Connected<IncomingStream<'_, LimitedListener>> for PeerAddress {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Lets only callers on the loopback address through.
pub(super) async fn guard(
    ConnectInfo(PeerAddress(peer)): ConnectInfo<PeerAddress>,
    request: Request,
    next: Next,
) -> Response {
    if is_loopback(peer.ip()) && is_direct(request.headers()) {
        return next.run(request).await;
    }
    const HINT: &str = "only callers on the loopback address may read this: use kubectl port-forward, \
                        or start the program with --explain-to-all\n";
    (StatusCode::FORBIDDEN, HINT).into_response()
}

/// Only the usual addresses: proxies beside a container use others of the loopback network.
fn is_loopback(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address == Ipv4Addr::LOCALHOST,
        IpAddr::V6(address) => address == Ipv6Addr::LOCALHOST,
    }
}

/// No proxy has passed the request on, according to its headers, and it names this host.
fn is_direct(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let is_forwarded = headers.contains_key(FORWARDED) || headers.contains_key("x-forwarded-for");
    !is_forwarded && host.is_some_and(|host| HOSTS.contains(&host.host()))
}
