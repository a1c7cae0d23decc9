use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, AtomicUsize},
};

use axum::body::Body as Answer;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::{body, cache::CacheBounds, trust::MonitoredCache};

/// An API server of Nodes that can go silent.
#[derive(Clone, Default)]
struct Server(Arc<State>);

#[derive(Default)]
struct State {
    nodes: Mutex<Vec<Value>>,
    watchers: Mutex<Vec<mpsc::UnboundedSender<Result<String, Infallible>>>>,
    listings: AtomicUsize,
    opened: AtomicUsize,
    /// Watches are accepted and never answered.
    is_mute: AtomicBool,
    /// The first event of each new watch.
    greeting: Mutex<Option<String>>,
    /// How long a listing takes after the objects were read.
    delay: Mutex<Duration>,
    /// The answer to a listing, instead of the objects.
    refusal: Mutex<Option<u16>>,
    /// Each page has other objects and names a next one.
    has_endless_pages: AtomicBool,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(service_fn(move |request| server.clone().serve(request)), "default")
    }

    fn limited_client(&self) -> Client {
        body::within(self.client(), body::ResponseLimits::TARGET)
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Answer>, Infallible> {
        let state = &self.0;
        if is_watch(request.uri()) {
            assert!(request.uri().query().unwrap().contains("allowWatchBookmarks=true"));
            state.opened.fetch_add(1, Ordering::SeqCst);
            if state.is_mute.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let (sender, lines) = mpsc::unbounded();
            if let Some(greeting) = &*state.greeting.lock() {
                sender.unbounded_send(Ok(greeting.clone())).unwrap();
            }
            state.watchers.lock().push(sender);
            return Ok(Response::new(Answer::from_stream(lines)));
        }
        state.listings.fetch_add(1, Ordering::SeqCst);
        if let Some(code) = *state.refusal.lock() {
            return Ok(Response::builder().status(code).body(Answer::from(failure(code).to_string())).unwrap());
        }
        let (items, delay) = (state.nodes.lock().clone(), *state.delay.lock());
        sleep(delay).await;
        let asked = |name| -> Option<usize> {
            request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix(name))?.parse().ok()
        };
        let (from, size) = (asked("continue=").unwrap_or_default(), asked("limit=").unwrap_or(usize::MAX));
        let next = from.saturating_add(size);
        let (items, next) = match state.has_endless_pages.load(Ordering::SeqCst) {
            true => ((from..next).map(|at| node(&at.to_string(), 5)).collect(), next.to_string()),
            false => {
                let rest = if next < items.len() { next.to_string() } else { String::new() };
                (items.into_iter().skip(from).take(size).collect::<Vec<_>>(), rest)
            }
        };
        let list = json!({ "metadata": { "resourceVersion": "10", "continue": next }, "items": items });
        Ok(Response::new(Answer::from(list.to_string())))
    }

    /// Sends an event with `type` as its first field, as API servers do.
    fn say(&self, kind: &str, object: &Value) {
        let line = event(kind, object);
        self.0.watchers.lock().retain(|watcher| watcher.unbounded_send(Ok(line.clone())).is_ok());
    }

    fn end_watches(&self) {
        self.0.watchers.lock().clear();
    }

    fn opened(&self) -> usize {
        self.0.opened.load(Ordering::SeqCst)
    }

    fn listings(&self) -> usize {
        self.0.listings.load(Ordering::SeqCst)
    }
}

fn node(name: &str, version: u64) -> Value {
    let metadata = json!({ "name": name, "uid": name, "resourceVersion": version.to_string() });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })
}

fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn failure(code: u16) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "reason": "x", "message": "no" })
}

struct World {
    server: Server,
    cache: Arc<ObjectCache<Node>>,
    told: Arc<Mutex<Vec<bool>>>,
    _watch: AbortOnDropHandle<()>,
}

const LIVENESS: WatchTiming = WatchTiming::TARGET;

fn world() -> World {
    world_of(Server::default())
}

fn world_of(server: Server) -> World {
    bounded_world_of(server, usize::MAX)
}

/// Responses have the limits of targets, and the cache holds so many Nodes.
fn bounded_world_of(server: Server, most: usize) -> World {
    let cache = ObjectCache::<Node>::new(&[], |_| {});
    cache.limit(CacheBounds::for_objects(most));
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    cache.on_trust(move |trust| tell.lock().push(trust.is_trusted()));
    let watch = tokio::spawn(Arc::clone(&cache).watch(server.limited_client(), Api::all, LIVENESS));
    World { server, cache, told, _watch: AbortOnDropHandle::new(watch) }
}

impl World {
    /// Waits until something is true, and returns how long that took.
    async fn until(&self, mut is_so: impl FnMut(&Self) -> bool) -> Duration {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < Duration::from_secs(600), "it never came true");
            sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }

    fn is_trusted(&self) -> bool {
        self.cache.trust().is_trusted()
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_that_the_server_ends_in_time_is_trusted_all_along() {
    let world = world();
    world.until(World::is_trusted).await;
    for _ in 0..10 {
        sleep(LIVENESS.watch_timeout).await;
        assert!(world.is_trusted());
        world.server.end_watches();
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((world.server.opened(), world.server.listings()), (11, 1), "one call for each end");
    assert_eq!(*world.told.lock(), [true], "when it was filled");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_signs_of_life() {
    let world = world();
    world.until(World::is_trusted).await;
    sleep(Duration::from_secs(1)).await;
    for _ in 0..10 {
        world
            .server
            .say("BOOKMARK", &json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "resourceVersion": "11" } }));
        sleep(Duration::from_secs(25)).await;
        assert!(world.is_trusted());
    }
    assert_eq!(world.server.opened(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_reopened_before_the_trust_is_lost() {
    let world = world();
    world.until(World::is_trusted).await;
    world.until(|world| world.server.opened() == 1).await;
    let took = world.until(|world| world.server.opened() == 2).await;
    assert!(took <= LIVENESS.idle_timeout + Duration::from_secs(1), "{took:?}");
    sleep(Duration::from_secs(20)).await;
    assert!(world.is_trusted() && *world.told.lock() == [true]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_accepted_and_never_answered_shows_in_time_and_recovers_by_itself() {
    let world = world();
    world.until(World::is_trusted).await;
    world.server.0.is_mute.store(true, Ordering::SeqCst);
    world.server.end_watches();
    let shown = world.until(|world| !world.is_trusted()).await;
    assert!(shown > LIVENESS.limit - Duration::from_secs(1) && shown < Duration::from_secs(60), "{shown:?}");
    let problem = world.cache.trust().problem().unwrap();
    assert!(problem.contains("no complete response from the API server within 10s"), "{problem}");
    sleep(Duration::from_secs(120)).await;
    assert!(!world.is_trusted(), "attempts are no signs of life");

    world.server.0.is_mute.store(false, Ordering::SeqCst);
    let took = world.until(World::is_trusted).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*world.told.lock(), [true, false, true], "told once each");
}

#[tokio::test(start_paused = true)]
async fn a_first_watch_that_is_never_answered_does_not_stay_trusted() {
    let server = Server::default();
    server.0.is_mute.store(true, Ordering::SeqCst);
    let world = world_of(server);
    world.until(World::is_trusted).await;
    let shown = world.until(|world| !world.is_trusted()).await;
    assert!(shown < Duration::from_secs(50), "{shown:?}");
    assert!(world.server.opened() > 1);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_reopened_watch_are_applied() {
    let world = world();
    world.until(|world| world.server.opened() == 2).await;
    sleep(Duration::from_secs(1)).await;
    world.server.say("ADDED", &node("n", 12));
    world.until(|world| world.cache.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_the_server_reports_on_a_watch_leads_to_a_listing() {
    let world = world();
    world.until(|world| world.server.opened() == 1).await;
    *world.server.0.nodes.lock() = vec![node("missed", 11)];
    world.server.say("ERROR", &failure(500));
    let took = world.until(|world| world.cache.len() == 1).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(world.cache.all()[0].name_any(), "missed");
    assert!(world.is_trusted());
}

#[tokio::test(start_paused = true)]
async fn watches_that_open_and_a_listing_that_is_refused_are_no_trust() {
    let world = world();
    world.until(|world| world.server.opened() == 1).await;
    *world.server.0.greeting.lock() = Some(event("ERROR", &failure(410)));
    *world.server.0.refusal.lock() = Some(403);
    world.server.end_watches();
    world.until(|world| !world.is_trusted()).await;
    sleep(Duration::from_secs(120)).await;
    assert!(!world.is_trusted());
    (*world.server.0.greeting.lock(), *world.server.0.refusal.lock()) = (None, None);
    let took = world.until(World::is_trusted).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_cannot_be_filled_says_why() {
    let server = Server::default();
    *server.0.refusal.lock() = Some(403);
    let world = world_of(server);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.cache.trust().problem().unwrap(), "not read yet: the list failed: no");
}

#[tokio::test(start_paused = true)]
async fn an_object_missing_from_a_list_and_the_watch_is_listed_again() {
    let server = Server::default();
    *server.0.delay.lock() = Duration::from_secs(3);
    let world = world_of(server);
    world.until(|world| world.server.listings() == 1).await;
    for (name, version) in [("gone", 9), ("fresh", 11)] {
        world.cache.wrote(serde_json::from_value(node(name, version)).unwrap());
    }
    *world.server.0.nodes.lock() = vec![node("fresh", 11)];
    world.until(|world| world.server.opened() == 1).await;
    world.server.say("ADDED", &node("fresh", 11));
    assert_eq!(world.cache.len(), 2, "nobody knows");
    let took = world.until(|world| world.cache.len() == 1).await;
    assert_eq!(world.cache.all()[0].name_any(), "fresh");
    assert!(took < Duration::from_secs(20), "{took:?}");
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.server.listings(), 2, "the watch shows everything else");
}

/// A standby's watch may be seconds behind when it takes over.
#[tokio::test(start_paused = true)]
async fn events_of_a_slow_watch_from_before_a_live_read_are_ignored() {
    let world = world();
    world.until(|world| world.cache.is_synced()).await;
    *world.server.0.nodes.lock() = vec![node("kept", 8)];
    *world.server.0.delay.lock() = Duration::from_secs(3);
    let nodes = Api::all(world.server.client());
    let reads = async {
        sleep(Duration::from_secs(1)).await;
        world.server.say("ADDED", &node("gone", 7));
        world.server.say("ADDED", &node("fresh", 11));
        world.until(|world| world.cache.len() == 2).await;
    };
    let (read, ()) = tokio::join!(world.cache.refresh(&nodes), reads);
    read.unwrap();
    world.server.say("ADDED", &node("gone too", 9));
    world.server.say("ADDED", &node("fresh too", 12));
    world.until(|world| world.cache.len() >= 3).await;
    let names: Vec<_> = world.cache.all().iter().map(|node| node.name_any()).collect();
    assert_eq!(names, ["fresh", "fresh too", "kept"]);
}

/// Attempts within ten minutes.
async fn attempts(world: &World) -> usize {
    let before = world.server.opened() + world.server.listings();
    sleep(Duration::from_mins(10)).await;
    world.server.opened() + world.server.listings() - before
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_have_no_end_is_given_up_at_the_bound_and_tried_again_after_growing_pauses() {
    let server = Server::default();
    server.0.has_endless_pages.store(true, Ordering::SeqCst);
    let world = bounded_world_of(server, 2000);
    world.until(|world| world.cache.is_over_limit()).await;
    assert_eq!(world.server.listings(), 5, "the first page beyond the bound is the last one");
    let problem = world.cache.trust().problem().unwrap();
    assert!(problem.contains("not read yet: there are more than 2000 objects"), "{problem}");
    let attempts = attempts(&world).await;
    assert!(attempts <= 8 * 5, "{attempts} requests in ten minutes");
    assert_eq!(world.cache.len(), 0, "nothing of such a list is stored");

    world.server.0.has_endless_pages.store(false, Ordering::SeqCst);
    let took = world.until(World::is_trusted).await;
    assert!(took <= Duration::from_mins(5) && !world.cache.is_over_limit(), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_live_read_whose_pages_have_no_end_is_given_up_at_the_bound() {
    let world = bounded_world_of(Server::default(), 2000);
    world.until(World::is_trusted).await;
    world.server.0.has_endless_pages.store(true, Ordering::SeqCst);
    let error = world.cache.refresh(&Api::all(world.server.limited_client())).await.unwrap_err();
    assert!(chain(&error).contains("there are more than 2000 objects"), "{error}");
    assert!(!world.is_trusted() && world.cache.is_over_limit());
    assert!(world.cache.len() <= 2500, "{}", world.cache.len());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_adds_objects_without_end_is_closed_at_the_bound_and_the_cache_recovers() {
    let world = bounded_world_of(Server::default(), 100);
    world.until(|world| world.server.opened() == 1).await;
    (0..250).for_each(|at| world.server.say("ADDED", &node(&at.to_string(), 11)));
    world.until(|world| world.cache.is_over_limit()).await;
    assert_eq!(world.cache.len(), 101);
    assert!(!world.is_trusted());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*world.told.lock(), [true, false], "handlers are told");
    let took = world.until(World::is_trusted).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(world.cache.len(), 0, "a list within the bound replaces everything");
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_objects_grow_without_end_is_closed_at_the_bound() {
    let world = bounded_world_of(Server::default(), 2);
    world.until(|world| world.server.opened() == 1).await;
    let mut large = node("one", 11);
    large["metadata"]["annotations"] = json!({"a": "x".repeat(100_000)});
    world.server.say("ADDED", &large);
    world.until(|world| world.cache.is_over_limit()).await;
    let problem = world.cache.trust().problem().unwrap();
    assert!(problem.contains("the objects need more than 1 MiB"), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_large_are_listed_in_smaller_pages() {
    let server = Server::default();
    let large = |at: usize| {
        let mut node = node(&at.to_string(), 5);
        node["metadata"]["annotations"] = json!({"a": "x".repeat(100_000)});
        node
    };
    *server.0.nodes.lock() = (0..200).map(large).collect();
    let world = bounded_world_of(server.clone(), 5000);
    let took = world.until(World::is_trusted).await;
    assert_eq!((world.cache.len(), world.server.listings()), (200, 1 + 4), "one page of 500 and four of 50");
    assert!(took < Duration::from_secs(5) && !world.cache.is_over_limit(), "{took:?}");

    let fresh = ObjectCache::<Node>::new(&[], |_| {});
    let api = Api::all(server.limited_client());
    fresh.refresh(&api).await.unwrap_err();
    fresh.refresh(&api).await.unwrap();
    assert_eq!(fresh.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn many_events_at_once_leave_others_their_turn() {
    let world = world();
    world.until(|world| world.server.opened() == 1).await;
    (0..10_000).for_each(|at| world.server.say("ADDED", &node(&at.to_string(), 11)));
    let seen = async {
        let mut turns = 0;
        while world.cache.len() < 10_000 {
            tokio::task::yield_now().await;
            turns += 1;
        }
        turns
    };
    let turns = seen.await;
    assert!(turns >= 100, "{turns}");
}
