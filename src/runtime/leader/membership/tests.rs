//! Replicas on virtual time, each with a link to one API server that can be slow, cut or held up.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Mutex,
};

use axum::body::Body as Answer;
use futures::{channel::mpsc, future::join_all};
use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::service_fn;

use super::*;
use crate::{
    fence::LeaseFence,
    http::ProcessReadiness,
    leader::{CLAIM, CLAIM_RENEWAL},
    members::{
        SETTLES,
        share::{ServedState, ShareFacts},
    },
};

/// The two Leases of a namespace.
const ROLES: [&str; 2] = ["machine-controller-manager", "machine-controller"];
const NAMESPACES: usize = 12;

/// An API server with Leases.
#[derive(Clone, Default)]
struct LeaseServer(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    /// By their paths.
    leases: BTreeMap<String, Value>,
    version: u64,
    watchers: Vec<(String, mpsc::UnboundedSender<Result<String, Infallible>>)>,
    writes: usize,
    verbs: BTreeSet<String>,
}

/// The way of one replica to the server.
#[derive(Clone)]
struct ServerLink {
    server: LeaseServer,
    state: watch::Sender<LinkState>,
    latency: Arc<Mutex<(StdRng, u64)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Good,
    /// Requests and answers are lost.
    Cut,
    /// The process is stopped: its requests arrive when it continues.
    Stopped,
}

impl ServerLink {
    fn new(server: &LeaseServer, seed: u64, latency: u64) -> Self {
        let latency = Arc::new(Mutex::new((StdRng::seed_from_u64(seed), latency)));
        Self { server: server.clone(), state: watch::Sender::new(LinkState::Good), latency }
    }

    fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }

    fn client(&self) -> Client {
        let link = self.clone();
        Client::new(service_fn(move |request| link.clone().serve(request)), "system")
    }

    async fn travel(&self) {
        let time = {
            let (rng, latency) = &mut *self.latency.lock().unwrap();
            rng.random_range(0..=*latency)
        };
        sleep(Duration::from_millis(time)).await;
        let mut state = self.state.subscribe();
        let state = *state.wait_for(|state| *state != LinkState::Stopped).await.unwrap();
        if state == LinkState::Cut {
            std::future::pending::<()>().await;
        }
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Answer>, Infallible> {
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(Answer::new(body), usize::MAX).await.unwrap();
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        self.travel().await;
        let answer = self.server.0.lock().unwrap().answer(&parts.method, &parts.uri, sent);
        self.travel().await;
        Ok(answer)
    }
}

impl ServerState {
    fn answer(&mut self, method: &Method, uri: &http::Uri, mut sent: Value) -> Response<Answer> {
        let (path, query) = (uri.path().to_owned(), uri.query().unwrap_or_default());
        let is_collection = path.ends_with("/leases");
        let verb = match (method.as_str(), is_collection) {
            ("GET", true) if query.contains("watch=true") => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", true) => "create",
            ("PUT", false) => "update",
            _ => "something else",
        };
        self.verbs.insert(format!("{verb} in {}", path.split('/').nth(5).unwrap_or_default()));
        match verb {
            "list" => {
                assert!(query.contains("labelSelector=machine.mcm%2Ffleet%3Done"), "{query}");
                let items: Vec<&Value> =
                    self.leases.iter().filter(|(key, _)| key.starts_with(&path)).map(|(_, lease)| lease).collect();
                respond(200, &json!({"metadata": {}, "items": items}))
            }
            "get" => match self.leases.get(&path) {
                Some(lease) => respond(200, lease),
                None => fail(404),
            },
            "create" => {
                let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
                if self.leases.contains_key(&path) { fail(409) } else { self.store(path, sent) }
            }
            "update" => match self.leases.get(&path) {
                None => fail(404),
                Some(stored) if stored["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] => {
                    fail(409)
                }
                Some(_) => self.store(path, sent.take()),
            },
            "watch" => {
                let name = query.split("metadata.name%3D").nth(1).unwrap().split('&').next().unwrap();
                let path = format!("{path}/{name}");
                let (sender, lines) = mpsc::unbounded();
                if let Some(lease) = self.leases.get(&path) {
                    sender.unbounded_send(Ok(event(lease))).unwrap();
                }
                self.watchers.push((path, sender));
                Response::new(Answer::from_stream(lines))
            }
            _ => fail(403),
        }
    }

    fn store(&mut self, path: String, mut lease: Value) -> Response<Answer> {
        self.version += 1;
        self.writes += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = event(&lease);
        self.watchers.retain(|(of, watcher)| *of != path || watcher.unbounded_send(Ok(line.clone())).is_ok());
        let answer = respond(200, &lease);
        self.leases.insert(path, lease);
        answer
    }
}

fn event(lease: &Value) -> String {
    format!("{{\"type\":\"MODIFIED\",\"object\":{lease}}}\n")
}

fn respond(code: u16, body: &Value) -> Response<Answer> {
    Response::builder().status(code).body(Answer::from(body.to_string())).unwrap()
}

fn fail(code: u16) -> Response<Answer> {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    respond(code, &json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}))
}

/// The virtual time with an offset, as the wall clock of one computer.
#[derive(Clone, Debug)]
struct WallClock {
    start: Instant,
    offset: Arc<Mutex<SignedDuration>>,
}

impl WallClock {
    fn new() -> Self {
        Self { start: Instant::now(), offset: Arc::default() }
    }

    fn step(&self, by: SignedDuration) {
        *self.offset.lock().unwrap() += by;
    }
}

impl TimeSource for WallClock {
    fn now(&self) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + self.start.elapsed() + *self.offset.lock().unwrap()
    }
}

/// The rights of all replicas to act: by namespace and Lease, with the number of the replica.
#[derive(Clone, Default)]
struct RightsBoard(Arc<Mutex<Vec<(String, usize, LeaseFence)>>>);

impl RightsBoard {
    fn add(&self, namespace: &str, lease: &str, replica: usize, fence: LeaseFence) {
        let mut all = self.0.lock().unwrap();
        all.push((format!("{namespace}/{lease}"), replica, fence));
    }

    /// The replica that may act, for each namespace and Lease.
    fn owners(&self) -> BTreeMap<String, usize> {
        let mut owners = BTreeMap::new();
        for (place, replica, fence) in &*self.0.lock().unwrap() {
            if fence.is_open() {
                let before = owners.insert(place.clone(), *replica);
                assert!(before.is_none(), "{before:?} and {replica} may act in {place} at {:?}", Instant::now());
            }
        }
        owners
    }
}

/// A replica of the fleet with its link.
struct SimulatedReplica {
    number: usize,
    link: ServerLink,
    wall: WallClock,
    stop: CancellationToken,
    task: AbortOnDropHandle<ReplicaEnd>,
}

#[derive(Debug, PartialEq, Eq)]
enum ReplicaEnd {
    Orderly,
    Expelled,
}

struct ServedNamespace {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
    is_leaving: bool,
}

/// The world of a test.
struct FleetWorld {
    server: LeaseServer,
    board: RightsBoard,
    replicas: Vec<SimulatedReplica>,
    /// Replicas that were ever started.
    started: usize,
    latency: u64,
    /// How long work takes that is under way when a namespace is handed over.
    work: Duration,
}

fn fleet() -> FleetName {
    FleetName { namespace: "system".to_owned(), name: "one".to_owned() }
}

/// The same names in each run: random ones leave a replica without a namespace once in a while.
fn entropy(seed: u64) -> Arc<dyn Fn() -> u128 + Send + Sync> {
    let rng = Mutex::new(StdRng::seed_from_u64(seed));
    Arc::new(move || rng.lock().unwrap().random())
}

fn namespaces() -> BTreeSet<String> {
    (0..NAMESPACES).map(|number| format!("shoot-{number:02}")).collect()
}

impl FleetWorld {
    fn new(replicas: usize) -> Self {
        let (server, board) = Default::default();
        let work = Duration::from_millis(200);
        let mut world = Self { server, board, replicas: Vec::new(), started: 0, latency: 50, work };
        (0..replicas).for_each(|_| world.start());
        world
    }

    fn start(&mut self) {
        let number = self.started;
        self.started += 1;
        let (link, wall) = (ServerLink::new(&self.server, number as u64, self.latency), WallClock::new());
        let stop = CancellationToken::new();
        let config = MembershipConfig {
            leases: link.client(),
            runtime: None,
            fleet: fleet(),
            clock: Arc::new(WallClock::new()),
            wall: Arc::new(wall.clone()),
            entropy: entropy(number as u64),
        };
        let life = live(number, config, self.board.clone(), self.work, stop.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(life));
        self.replicas.push(SimulatedReplica { number, link, wall, stop, task });
    }

    /// Lets time pass, and checks all the time that nothing has two owners.
    async fn pass(&self, seconds: f64) {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            self.board.owners();
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until each namespace has one owner for both roles, and these are all of the replicas; how long it took.
    async fn until_shared_by(&self, replicas: &[usize]) -> Duration {
        let (begun, replicas) = (Instant::now(), replicas.iter().copied().collect());
        loop {
            let owners = self.board.owners();
            let found: BTreeSet<usize> = owners.values().copied().collect();
            if owners.len() == NAMESPACES * ROLES.len() && found == replicas {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < Duration::from_secs(600), "{replicas:?} do not share: {owners:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts a process for each that has ended.
    fn refill(&mut self, replicas: usize) {
        self.replicas.retain(|replica| !replica.task.is_finished());
        while self.replicas.len() < replicas {
            self.start();
        }
    }

    fn kill(&mut self, number: usize) {
        self.replicas.retain(|replica| replica.number != number);
    }

    fn replica(&self, number: usize) -> &SimulatedReplica {
        self.replicas.iter().find(|replica| replica.number == number).unwrap()
    }

    fn writes(&self) -> usize {
        self.server.0.lock().unwrap().writes
    }

    fn holder(&self, namespace: &str, lease: &str) -> String {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{lease}");
        let leases = &self.server.0.lock().unwrap().leases;
        leases[&path]["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    fn memberships(&self) -> usize {
        let leases = &self.server.0.lock().unwrap().leases;
        leases.keys().filter(|path| path.contains("/leases/mcm-fleet-one-")).count()
    }

    /// A program with the timing of the Go programs.
    fn go_program(&self, namespace: &str, lease: &str) -> LeaderElection {
        let link = ServerLink::new(&self.server, 99, self.latency);
        let config = LeaseConfig {
            namespace: namespace.to_owned(),
            name: lease.to_owned(),
            identity: "go-pod".to_owned(),
            timing: LeaseTiming::default(),
        };
        LeaderElection::new(link.client(), config, Arc::new(WallClock::new())).unwrap()
    }
}

/// A process: it joins, serves its share, and leaves.
async fn live(
    number: usize,
    config: MembershipConfig,
    board: RightsBoard,
    work: Duration,
    stop: CancellationToken,
) -> ReplicaEnd {
    let readiness = ProcessReadiness::default().expect("membership");
    let Some(membership) = FleetMembership::join(config.clone(), readiness, &stop).await else {
        return ReplicaEnd::Orderly;
    };
    let standing = Arc::clone(membership.standing());
    let (found, mut running) = (namespaces(), BTreeMap::<String, ServedNamespace>::new());
    while !stop.is_cancelled() {
        running.retain(|_, one| !(one.is_leaving && one.task.is_finished()));
        let state = |name: &str, one: &ServedNamespace| match (one.is_leaving, standing.holds(name)) {
            (true, _) => ServedState::Leaves,
            (false, true) => ServedState::Holds,
            (false, false) => ServedState::Waits,
        };
        let served = running.iter().map(|(name, one)| (name.clone(), state(name, one))).collect();
        let plan = standing.members(|members, open_since| {
            let is_asked_for = |lease: &str, namespace: &str| members.asks_for(lease, namespace);
            let (own, live) = (standing.lease.as_str(), members.live(open_since));
            ShareFacts { own, live: &live, is_asked_for: &is_asked_for, found: &found, served: &served }.plan()
        });
        for (_, one) in running.iter_mut().filter(|(name, _)| !plan.serve.contains(*name)) {
            one.stop.cancel();
            one.is_leaving = true;
        }
        for name in plan.serve {
            running.entry(name.clone()).or_insert_with(|| {
                let stop = CancellationToken::new();
                let cell = SimulatedCell {
                    namespace: name,
                    number,
                    config: config.clone(),
                    standing: Arc::clone(&standing),
                    board: board.clone(),
                    work,
                    stop: stop.clone(),
                };
                ServedNamespace { stop, task: AbortOnDropHandle::new(tokio::spawn(cell.serve())), is_leaving: false }
            });
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(Duration::from_secs(2)) => {}
            () = standing.changed() => {}
            () = standing.expelled() => return ReplicaEnd::Expelled,
        }
    }
    standing.end();
    running.values().for_each(|one| one.stop.cancel());
    join_all(running.into_values().map(|one| one.task)).await;
    membership.end().await;
    ReplicaEnd::Orderly
}

/// A cell: both roles, each while its Lease is held, again after a loss.
struct SimulatedCell {
    namespace: String,
    number: usize,
    config: MembershipConfig,
    standing: Arc<FleetStanding>,
    board: RightsBoard,
    work: Duration,
    stop: CancellationToken,
}

impl SimulatedCell {
    async fn serve(self) {
        tokio::join!(self.lead(ROLES[0]), self.lead(ROLES[1]));
    }

    async fn lead(&self, lease: &str) {
        while !self.stop.is_cancelled() {
            let election = claim(&self.config, &self.standing, &self.namespace, lease);
            let Some(leadership) = election.acquire_until(&self.stop).await else { return };
            self.board.add(&self.namespace, lease, self.number, leadership.fence());
            tokio::select! {
                () = leadership.lost() => {}
                () = self.stop.cancelled() => {
                    sleep(self.work).await;
                    return leadership.release().await;
                }
            }
        }
    }
}

/// The election of a member for a Lease of a namespace.
fn claim(config: &MembershipConfig, standing: &Arc<FleetStanding>, namespace: &str, lease: &str) -> LeaderElection {
    let claim = LeaseConfig {
        namespace: namespace.to_owned(),
        name: lease.to_owned(),
        identity: standing.identity.clone(),
        timing: CLAIM,
    };
    let election = LeaderElection::new(config.leases.clone(), claim, Arc::clone(&config.clock)).unwrap();
    election.renewing_every(CLAIM_RENEWAL).of_member(standing)
}

#[tokio::test(start_paused = true)]
async fn replicas_share_the_namespaces_with_few_writes_and_the_rights_of_the_manifests() {
    let world = FleetWorld::new(3);
    world.until_shared_by(&[0, 1, 2]).await;
    world.pass(60.0).await;
    let before = (world.board.owners(), world.writes());
    world.pass(600.0).await;
    assert_eq!(world.board.owners(), before.0, "nothing moves");
    let of_members = 3.0 / RENEWAL.as_secs_f64();
    let of_claims = (ROLES.len() * NAMESPACES) as f64 / CLAIM_RENEWAL.as_secs_f64();
    let each_second = (world.writes() - before.1) as f64 / 600.0;
    assert!(each_second <= 1.05 * (of_members + of_claims), "{each_second} writes a second");
    let verbs = world.server.0.lock().unwrap().verbs.clone();
    let of_fleet: Vec<&String> = verbs.iter().filter(|verb| verb.ends_with(" in system")).collect();
    assert_eq!(of_fleet, ["create in system", "list in system", "update in system"]);
}

#[tokio::test(start_paused = true)]
async fn each_namespace_is_led_again_within_20_s_of_a_death_and_its_lease_is_used_again() {
    let mut world = FleetWorld::new(3);
    world.until_shared_by(&[0, 1, 2]).await;
    world.pass(31.3).await;
    for killed in 0..3 {
        world.kill(killed);
        world.start();
        let left = [killed + 1, killed + 2];
        let begun = Instant::now();
        let is_led = |world: &FleetWorld| world.board.owners().len() == NAMESPACES * ROLES.len();
        while !is_led(&world) {
            sleep(Duration::from_millis(50)).await;
        }
        assert!(begun.elapsed() <= Duration::from_secs(20), "{:?}", begun.elapsed());
        world.until_shared_by(&[left[0], left[1], killed + 3]).await;
        world.pass(33.7).await;
    }
    assert!(world.memberships() <= 4, "{} Leases of members", world.memberships());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_stopped_acts_no_more_and_ends() {
    let mut world = FleetWorld::new(3);
    world.until_shared_by(&[0, 1, 2]).await;
    world.replica(0).link.set(LinkState::Stopped);
    world.pass(10.1).await;
    assert!(!world.board.owners().values().any(|owner| *owner == 0), "its membership ran out");
    world.pass(9.9).await;
    assert_eq!(world.board.owners().len(), NAMESPACES * ROLES.len(), "led again after 20 s");
    world.pass(10.0).await;
    // Its requests of half a minute ago arrive now.
    world.replica(0).link.set(LinkState::Good);
    world.pass(5.0).await;
    let stopped = world.replicas.remove(0);
    assert_eq!(stopped.task.await.unwrap(), ReplicaEnd::Expelled);
    world.pass(60.0).await;
    assert_eq!(world.board.owners().into_values().collect::<BTreeSet<usize>>(), [1, 2].into());
}

#[rstest]
#[case::a_moment(13.0)]
#[case::minutes(240.0)]
#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_away_nothing_is_done_and_afterwards_each_replica_has_what_it_had(
    #[case] seconds: f64,
) {
    let world = FleetWorld::new(3);
    world.until_shared_by(&[0, 1, 2]).await;
    world.pass(10.0).await;
    let before = world.board.owners();
    let all = |state| world.replicas.iter().for_each(|replica| replica.link.set(state));
    all(LinkState::Cut);
    world.pass(12.0).await;
    assert_eq!(world.board.owners(), BTreeMap::new());
    world.pass(seconds - 12.0).await;
    all(LinkState::Good);
    world.pass(6.0).await;
    assert_eq!(world.board.owners(), before);
    world.pass(60.0).await;
    assert_eq!(world.board.owners(), before);
    assert!(world.replicas.iter().all(|replica| !replica.task.is_finished()));
}

#[rstest]
#[case(1)]
#[case(-1)]
#[tokio::test(start_paused = true)]
async fn a_step_of_the_wall_clock_costs_at_most_the_time_to_the_next_renewal(#[case] hours: i64) {
    let world = FleetWorld::new(2);
    world.until_shared_by(&[0, 1]).await;
    world.pass(10.0).await;
    let before = world.board.owners();
    world.replica(0).wall.step(SignedDuration::from_hours(hours));
    assert_eq!(world.board.owners() == before, hours < 0, "forward it may have been suspended");
    world.pass(6.0).await;
    assert_eq!(world.board.owners(), before);
}

#[tokio::test(start_paused = true)]
async fn a_new_replica_gets_its_share_a_few_at_a_time_with_gaps_below_2_s() {
    let mut world = FleetWorld::new(1);
    world.until_shared_by(&[0]).await;
    world.start();
    let (begun, mut free) = (Instant::now(), BTreeMap::<String, Instant>::new());
    let all: BTreeSet<String> =
        namespaces().iter().flat_map(|name| ROLES.map(|role| format!("{name}/{role}"))).collect();
    while begun.elapsed() < Duration::from_secs(120) {
        let owners = world.board.owners();
        free.retain(|place, _| !owners.contains_key(place));
        for place in all.iter().filter(|place| !owners.contains_key(*place)) {
            let since = free.entry(place.clone()).or_insert_with(Instant::now);
            assert!(since.elapsed() <= Duration::from_secs(2), "{place} is free for {:?}", since.elapsed());
        }
        assert!(free.len() <= 2 * ROLES.len(), "one begins to move when one is free: {free:?}");
        sleep(Duration::from_millis(20)).await;
    }
    let moved = world.board.owners().values().filter(|owner| **owner == 1).count();
    assert!((4..=2 * NAMESPACES - 4).contains(&moved), "{moved} of {}", 2 * NAMESPACES);

    // And back, when it ends.
    world.replica(1).stop.cancel();
    let ended = world.until_shared_by(&[0]).await;
    assert!(ended <= Duration::from_secs(4), "{ended:?}");
    assert_eq!(world.replicas.remove(1).task.await.unwrap(), ReplicaEnd::Orderly);
}

#[tokio::test(start_paused = true)]
async fn a_go_program_is_respected_for_each_role_by_itself_and_stays_out_of_a_claim() {
    let (namespace, role) = ("shoot-00", ROLES[1]);
    let mut world = FleetWorld::new(0);
    let go = world.go_program(namespace, role).acquire().await;
    (0..2).for_each(|_| world.start());
    world.pass(60.0).await;
    assert_eq!(world.holder(namespace, role), "go-pod");
    let owners = world.board.owners();
    assert_eq!(owners.len(), NAMESPACES * ROLES.len() - 1);
    assert!(owners.contains_key(&format!("{namespace}/{}", ROLES[0])));

    // It ends without a release, as Go programs do.
    drop(go);
    assert!(world.until_shared_by(&[0, 1]).await <= Duration::from_secs(20));
    let owner = world.board.owners()[&format!("{namespace}/{role}")];
    let standby = tokio::spawn(world.go_program(namespace, role).acquire());
    world.pass(30.0).await;
    world.kill(owner);
    world.until_shared_by(&[1 - owner]).await;
    world.pass(300.0).await;
    assert!(!standby.is_finished(), "the claim was never free for it");
}

/// The other replica would succeed it at once, while its calls may have an effect.
#[tokio::test(start_paused = true)]
async fn a_replica_whose_work_was_aborted_is_succeeded_once_its_calls_are_over() {
    let world = FleetWorld::new(1);
    world.until_shared_by(&[0]).await;
    let link = ServerLink::new(&world.server, 7, 50);
    let config = MembershipConfig {
        leases: link.client(),
        runtime: None,
        fleet: fleet(),
        clock: Arc::new(WallClock::new()),
        wall: Arc::new(WallClock::new()),
        entropy: entropy(7),
    };
    let readiness = ProcessReadiness::default().expect("membership");
    let never = CancellationToken::new();
    let membership = FleetMembership::join(config.clone(), readiness, &never).await.unwrap();
    let standing = Arc::clone(membership.standing());
    let election = |namespace: &str| claim(&config, &standing, namespace, ROLES[0]);
    let holder = |namespace: &str| world.holder(namespace, ROLES[0]);

    let leadership = election("moved").acquire().await;
    let fence = leadership.fence();
    let (aborted, ending) = (Instant::now(), tokio::spawn(leadership.end_aborted()));
    sleep(SETTLES - Duration::from_secs(1)).await;
    assert!(!fence.is_open());
    assert_eq!(holder("moved"), standing.identity);
    ending.await.unwrap();
    assert_eq!(holder("moved"), "");
    assert!(aborted.elapsed() < SETTLES + Duration::from_secs(1));

    // A cell that failed is restarted in this process.
    drop(election("failed").acquire().await);
    let failed = Instant::now();
    let again = election("failed").acquire().await;
    assert!(failed.elapsed() >= SETTLES, "{:?}", failed.elapsed());

    // The process ends.
    standing.end();
    again.end_aborted().await;
    membership.end().await;
    let lease = standing.lease.clone();
    assert_eq!(world.holder("system", &lease), standing.identity, "it is not released");
    world.pass(20.0).await;
    assert_eq!(world.holder("system", &lease), "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn never_two_replicas_may_act_in_a_namespace_and_each_is_led_when_the_faults_end(
        seed: u64, latency in 0u64..2_500, replicas in 2usize..5,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut world = FleetWorld::new(0);
            (world.latency, world.work) = (latency, Duration::from_secs(rng.random_range(0..20)));
            (0..replicas).for_each(|_| world.start());
            for _ in 0..15 {
                world.pass(rng.random_range(0.0..30.0)).await;
                let index = rng.random_range(0..world.replicas.len());
                let replica = &world.replicas[index];
                match rng.random_range(0..8) {
                    0 | 1 => replica.link.set(LinkState::Cut),
                    2 | 3 => replica.link.set(LinkState::Stopped),
                    4 => replica.wall.step(SignedDuration::from_secs(rng.random_range(-3_600..3_600))),
                    5 => replica.stop.cancel(),
                    6 => drop(world.replicas.remove(index)),
                    _ => world.replicas.iter().for_each(|replica| replica.link.set(LinkState::Good)),
                }
                world.refill(replicas);
            }
            world.latency = 20;
            for replica in &world.replicas {
                replica.link.set(LinkState::Good);
                replica.link.latency.lock().unwrap().1 = world.latency;
            }
            let healed = Instant::now();
            while world.board.owners().len() < NAMESPACES * ROLES.len() {
                assert!(healed.elapsed() < Duration::from_secs(180), "{:?}", world.board.owners());
                world.refill(replicas);
                world.pass(1.0).await;
            }
        });
    }
}
