//! The connections to one driver, and whether it can be called.
//!
//! A background task, the keeper, polls the driver for the providers that it serves and for its health, over a separate
//! connection. While the driver does not serve, calls fail at once, and running calls end if it hangs: a driver that
//! hangs or crashed delays no other. Only the keeper reconnects then, with a back-off.
//!
//! The keeper's connection does not prove that the connection for calls works: a proxy may drop only the latter. So it is
//! pinged, and ends with its calls if a ping is not answered.

use std::{
    fmt::Display,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::{
    net::{TcpStream, UnixStream},
    sync::{Notify, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tonic::{Status, transport::Channel};

use super::{
    address::{DriverAddress, DriverEndpoint},
    check,
    io::{RpcStream, keep_alive},
    proto::{self, driver_client::DriverClient},
    tls::TlsFiles,
    wire,
};
use mcm_driver::{
    code::Code,
    error::DriverError,
    guard::DriverObserver,
    interface::{DriverCapabilities, SecretData},
};
use mcm_runtime::{
    objects::chain,
    watched::{FileFingerprints, WatchedValue},
};

/// How long a connection may take, with its TLS handshake; longer than a look, so that a peer that is silent counts as hanging.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a call waits until the driver was reached for the first time.
const FIRST_CONTACT: Duration = Duration::from_secs(5);
/// Period in which the next call checks the TLS files.
const LOOK: Duration = Duration::from_secs(10);

/// Times of the keeper.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeeperTiming {
    /// Period of polls of a healthy driver.
    pub period: Duration,
    /// How long it may take to respond.
    pub limit: Duration,
    /// Failed polls after which it counts as down.
    pub misses: u32,
    /// First and longest pause between polls of a driver that is down.
    pub pauses: (Duration, Duration),
    pub pings: PingTiming,
}

/// Pings of HTTP/2 on the connection for calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct PingTiming {
    /// After so much silence.
    pub every: Duration,
    /// How long the answer may take.
    pub limit: Duration,
}

impl Default for KeeperTiming {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(10),
            limit: Duration::from_secs(5),
            misses: 3,
            pauses: (Duration::from_millis(100), Duration::from_secs(5)),
            pings: PingTiming { every: Duration::from_secs(10), limit: Duration::from_secs(10) },
        }
    }
}

/// The state of a driver for calls.
#[derive(Clone, Debug, PartialEq)]
enum DriverAvailability {
    /// Not reached yet.
    Starting,
    /// It serves.
    Up,
    /// It does not.
    Down {
        /// Why.
        reason: String,
        /// It does not respond, and neither will calls in flight. Otherwise they end by themselves: the connection of a
        /// process that died breaks, and one that is being stopped lets them finish.
        hangs: bool,
    },
}

/// The providers and features of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriverFeatures {
    pub capabilities: DriverCapabilities,
    /// It supports volumes.
    pub volume_ids: bool,
    /// It reads the capacity of VMs.
    pub capacity: bool,
}

impl Default for DriverFeatures {
    /// The state before the first poll: the driver itself refuses unsupported calls.
    fn default() -> Self {
        Self {
            capabilities: DriverCapabilities { initialize: true, list: true, inspect: true, tag: true },
            volume_ids: true,
            capacity: true,
        }
    }
}

/// The way to one driver.
pub(super) struct DriverConnections {
    endpoint: DriverEndpoint,
    observer: Arc<dyn DriverObserver>,
    timing: KeeperTiming,
    /// The driver permits pings, as far as known.
    permits_pings: Arc<AtomicBool>,
    calls: WatchedValue<DriverChannel>,
    looks: WatchedValue<DriverChannel>,
    served: Mutex<DriverFeatures>,
    condition: watch::Sender<DriverAvailability>,
    /// A call broke: poll the driver now.
    broke: Notify,
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChannelPurpose {
    Calls,
    Looks,
}

/// Pings of a connection, and whether the driver permits them.
type PermittedPings = Option<(PingTiming, Arc<AtomicBool>)>;

/// A channel, and the files with which it was made.
#[derive(Clone)]
struct DriverChannel {
    channel: Channel,
    is_pinged: bool,
    files: FileFingerprints,
}

impl DriverChannel {
    fn new(endpoint: &DriverEndpoint, pings: PermittedPings) -> Self {
        Self {
            is_pinged: pings.is_some(),
            channel: channel(endpoint, pings),
            files: FileFingerprints::read(endpoint.tls.paths()),
        }
    }
}

impl DriverConnections {
    pub(super) fn new(endpoint: DriverEndpoint, observer: Arc<dyn DriverObserver>, timing: KeeperTiming) -> Self {
        observer.reached(&endpoint.name, false);
        let permits_pings = Arc::new(AtomicBool::new(true));
        let pings = Some((timing.pings, Arc::clone(&permits_pings)));
        Self {
            observer,
            timing,
            permits_pings,
            calls: WatchedValue::new(DriverChannel::new(&endpoint, pings), LOOK),
            looks: WatchedValue::new(DriverChannel::new(&endpoint, None), Duration::ZERO),
            served: Mutex::default(),
            condition: watch::Sender::new(DriverAvailability::Starting),
            broke: Notify::new(),
            endpoint,
        }
    }

    /// The providers and features of the driver, as far as known.
    pub(super) fn served(&self) -> DriverFeatures {
        *self.served.lock()
    }

    /// Makes a call, unless the driver is down. If it begins to hang meanwhile, the outcome of the call is unknown.
    pub(super) async fn call<T, F>(&self, work: impl FnOnce(DriverClient<Channel>) -> F) -> Result<T, DriverError>
    where
        F: Future<Output = Result<Result<T, DriverError>, Status>>,
    {
        self.wait_until_known().await?;
        let call = async { work(client(self.channel(ChannelPurpose::Calls).await)).await };
        tokio::select! {
            biased;
            result = call => result.unwrap_or_else(|status| Err(self.broken(&status))),
            reason = self.hangs() => Err(self.error(Code::Unavailable, format!("{reason}; the outcome of the call is unknown"))),
        }
    }

    /// The error of a call that broke. It makes the keeper look.
    fn broken(&self, status: &Status) -> DriverError {
        self.broke.notify_one();
        let DriverError { code, message, .. } = wire::broken_call(status);
        self.error(code, message)
    }

    /// A new connection. Only that for calls is pinged: polls have a time limit.
    fn connection(&self, purpose: ChannelPurpose) -> DriverChannel {
        let is_pinged = purpose == ChannelPurpose::Calls && self.permits_pings.load(Relaxed);
        let pings = is_pinged.then(|| (self.timing.pings, Arc::clone(&self.permits_pings)));
        DriverChannel::new(&self.endpoint, pings)
    }

    /// The connection for calls sends pings no more if the driver refused them.
    fn heed_refusal(&self) {
        self.calls.change(|calls| {
            if calls.is_pinged && !self.permits_pings.load(Relaxed) {
                let (driver, every) = (&self.endpoint.name, self.timing.pings.every);
                tracing::warn!(
                    driver,
                    "the driver refuses pings, so from now on only TCP detects dead connections: configure its server to \
                     permit a ping every {every:?}, also without calls"
                );
                *calls = self.connection(ChannelPurpose::Calls);
            }
        });
    }

    /// Waits until the driver responded for the first time.
    pub(super) async fn wait_until_known(&self) -> Result<(), DriverError> {
        let mut condition = self.condition.subscribe();
        let known =
            timeout(FIRST_CONTACT, condition.wait_for(|condition| *condition != DriverAvailability::Starting)).await;
        match known {
            Ok(Ok(known)) => match &*known {
                DriverAvailability::Down { reason, .. } => Err(self.error(Code::Unavailable, reason)),
                _ => Ok(()),
            },
            _ => Err(self.error(Code::Unavailable, "it has not been reached yet")),
        }
    }

    /// Waits until the driver hangs, and returns the reason.
    async fn hangs(&self) -> String {
        let mut condition = self.condition.subscribe();
        loop {
            if let DriverAvailability::Down { reason, hangs: true } = &*condition.borrow_and_update() {
                return reason.clone();
            }
            if condition.changed().await.is_err() {
                return "its connection was closed".to_owned();
            }
        }
    }

    fn error(&self, code: Code, text: impl Display) -> DriverError {
        let DriverEndpoint { name, address, .. } = &self.endpoint;
        DriverError::new(code, format!("driver {name} at {address}: {text}"))
    }

    /// Polls the driver for ever.
    pub(super) async fn keep(self: Arc<Self>) {
        let timing = self.timing;
        let (mut misses, mut pause) = (0, timing.pauses.0);
        loop {
            let found = timeout(timing.limit, self.look()).await;
            let hangs = found.is_err();
            match found.unwrap_or_else(|_| Err(format!("it did not respond within {:?}", timing.limit))) {
                Ok(served) => {
                    (misses, pause) = (0, timing.pauses.0);
                    *self.served.lock() = served;
                    self.set(DriverAvailability::Up);
                    // The first of both. Not at once: a driver may break every call and answer every poll.
                    sleep(timing.pauses.0).await;
                    let _ = timeout(timing.period, self.broke.notified()).await;
                }
                Err(reason) => {
                    misses += 1;
                    // The peer may have closed the connection without notice.
                    self.looks.change(|looks| *looks = self.connection(ChannelPurpose::Looks));
                    let was_up = *self.condition.borrow() == DriverAvailability::Up;
                    if was_up && misses < timing.misses {
                        sleep(timing.pauses.0).await;
                        continue;
                    }
                    let reason = check::text(&reason, &SecretData::default());
                    self.set(DriverAvailability::Down { reason, hangs });
                    self.calls.change(|calls| *calls = self.connection(ChannelPurpose::Calls));
                    sleep(pause).await;
                    pause = (pause * 2).min(timing.pauses.1);
                }
            }
        }
    }

    fn set(&self, condition: DriverAvailability) {
        let DriverEndpoint { name, address, .. } = &self.endpoint;
        self.condition.send_if_modified(|old| {
            let is_new = match (&*old, &condition) {
                (DriverAvailability::Down { hangs: old, .. }, DriverAvailability::Down { hangs: new, .. }) => {
                    old != new
                }
                (old, new) => old != new,
            };
            match &condition {
                DriverAvailability::Up if is_new => tracing::info!(driver = name, %address, "driver connected"),
                DriverAvailability::Down { reason, .. } if is_new => {
                    tracing::warn!(driver = name, %address, reason, "driver cannot be called");
                }
                _ => {}
            }
            if (*old == DriverAvailability::Up) != (condition == DriverAvailability::Up) {
                self.observer.reached(name, condition == DriverAvailability::Up);
            }
            *old = condition;
            is_new
        });
    }

    async fn look(&self) -> Result<DriverFeatures, String> {
        let mut client = client(self.channel(ChannelPurpose::Looks).await);
        let broke = |status: Status| wire::broken_call(&status).message;
        let asked = proto::GetCapabilitiesRequest { protocol_versions: vec![proto::VERSION] };
        let found = client.get_capabilities(asked).await.map_err(broke)?.into_inner();
        if found.protocol_version != proto::VERSION {
            return Err(format!("it does not support version {} of the protocol", proto::VERSION));
        }
        let name = &self.endpoint.name;
        let Some(provider) = found.providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<&str> = found.providers.iter().map(|provider| provider.name.as_str()).collect();
            return Err(format!("it serves {}, and not {name}", names.join(", ")));
        };
        let health = client.health(proto::HealthRequest {}).await.map_err(broke)?.into_inner();
        if !health.serving {
            return Err(format!("it does not serve at the moment: {}", health.message));
        }
        let proto::Provider { initialize, list, inspect, tag, .. } = *provider;
        let capabilities = DriverCapabilities { initialize, list, inspect, tag };
        Ok(DriverFeatures { capabilities, volume_ids: provider.volume_ids, capacity: provider.capacity })
    }

    /// The channel for the next call, with the TLS files of today.
    async fn channel(&self, purpose: ChannelPurpose) -> Channel {
        self.heed_refusal();
        let connection = match purpose {
            ChannelPurpose::Calls => &self.calls,
            ChannelPurpose::Looks => &self.looks,
        };
        let what = format!("TLS files of driver {}", self.endpoint.name);
        connection.current(&what, async |used| self.renewed(purpose, &used.files).await).await.channel
    }

    async fn renewed(&self, purpose: ChannelPurpose, used: &FileFingerprints) -> Result<Option<DriverChannel>, String> {
        if self.endpoint.tls.is_empty() || used.changed().await.is_none() {
            return Ok(None);
        }
        let files = self.endpoint.tls.clone();
        let read = spawn_blocking(move || files.client()).await.map_err(|error| error.to_string())?;
        read.map(|_| Some(self.connection(purpose))).map_err(|error| chain(&error))
    }
}

fn client(channel: Channel) -> DriverClient<Channel> {
    DriverClient::new(channel)
        .max_decoding_message_size(proto::LARGEST_RESPONSE)
        .max_encoding_message_size(proto::LARGEST_REQUEST)
}

/// Connects with its first call, and again with the next one after it broke.
fn channel(endpoint: &DriverEndpoint, pings: PermittedPings) -> Channel {
    let uri = match &endpoint.address {
        DriverAddress::Tcp { host, port, is_tls } => {
            let scheme = if *is_tls { "https" } else { "http" };
            format!("{scheme}://{host}:{port}").parse().ok()
        }
        DriverAddress::Unix(_) => None,
    };
    let transport = tonic::transport::Endpoint::from_static("http://localhost");
    let transport = transport.origin(uri.unwrap_or_else(|| Uri::from_static("http://localhost")));
    let transport = match &pings {
        None => transport,
        Some((PingTiming { every, limit }, _)) => {
            transport.http2_keep_alive_interval(*every).keep_alive_timeout(*limit).keep_alive_while_idle(true)
        }
    };
    let endpoint = endpoint.clone();
    transport.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let (endpoint, pings) = (endpoint.clone(), pings.clone());
        async move {
            let connection = timeout(CONNECT, connect(&endpoint)).await??;
            Ok::<_, io::Error>(TokioIo::new(match &pings {
                Some((_, permits)) => connection.pinged(permits),
                None => connection,
            }))
        }
    }))
}

async fn connect(endpoint: &DriverEndpoint) -> io::Result<RpcStream> {
    match &endpoint.address {
        DriverAddress::Unix(path) => UnixStream::connect(path).await.map(RpcStream::new),
        DriverAddress::Tcp { host, port, is_tls } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await?;
            keep_alive(&stream)?;
            if !is_tls {
                return Ok(RpcStream::new(stream));
            }
            let name = endpoint.server_name.as_deref().unwrap_or(host).to_owned();
            let name = ServerName::try_from(name).map_err(io::Error::other)?;
            let connector = connector(endpoint.tls.clone()).await?;
            connector.connect(name, stream).await.map(RpcStream::new)
        }
    }
}

async fn connector(files: TlsFiles) -> io::Result<TlsConnector> {
    let config = spawn_blocking(move || files.client()).await?.map_err(io::Error::other)?;
    Ok(TlsConnector::from(Arc::new(config)))
}
