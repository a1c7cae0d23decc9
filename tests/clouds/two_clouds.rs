//! Two clouds in one process and one namespace: while one hangs, the other is served as fast as alone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::{
    nodes::Nodes,
    pool::CLUSTER,
    simulation::ENDPOINTS,
    stand_ins,
    support::{objects, scene::Scene, wait, world::World},
};

/// In the cloud that works.
const MACHINES: u32 = 4;
/// In the cloud that hangs: more than have a slot at once.
const STUCK: u32 = 120;
const PATIENCE: Duration = Duration::from_secs(180);
/// A busy machine may be so many times slower later on, and delay anything by so much. A call that hangs takes longer.
const SLOWER: f64 = 3.0;
const NOISE: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_hangs_does_not_delay_another() {
    let (works, hangs) = (stand_ins::start("yandex").await, stand_ins::start("metal-stack").await);
    let hole = Hole::open().await;
    let world = World::undisturbed("two-clouds").await;
    let mut secret = hangs.secret();
    secret["metalAPIURL"] = json!(format!("http://{}/metal", hole.address));
    for (name, data) in [("pool", works.secret()), ("stuck", secret)] {
        let mut object = objects::secret(name);
        object["stringData"] = data;
        world.apply(object).await;
    }
    for (name, secret, cloud) in [("small", "pool", &works), ("large", "pool", &works), ("stuck", "stuck", &hangs)] {
        let mut class = objects::class(name);
        class["provider"] = json!(cloud.provider());
        class["providerSpec"] = cloud.spec(CLUSTER);
        class["secretRef"]["name"] = json!(secret);
        world.apply(class).await;
    }
    let _nodes = Nodes::keep(world.target.clone(), Arc::clone(&works), CLUSTER);
    let _manager = world.launch("run", &["--leader-elect=false", ENDPOINTS]).ready().await;

    let alone = life_of_a_pool(&world).await;
    world.apply(stuck(STUCK)).await;
    hole.until_reached().await;
    let beside_creations = life_of_a_pool(&world).await;
    world.apply(stuck(0)).await;
    let is_deleting = |scene: &Scene| (scene.live().count() == 0).then_some(());
    world.scene.find("all machines of the cloud that hangs to be deleted", PATIENCE, is_deleting).await;
    hole.until_reached().await;
    let beside_deletions = life_of_a_pool(&world).await;

    println!("alone {alone:?}, beside creations {beside_creations:?}, beside deletions {beside_deletions:?}");
    for beside in [beside_creations, beside_deletions] {
        assert!(beside < alone.mul_f64(SLOWER) + NOISE, "{alone:?} alone, {beside:?} beside a cloud that hangs");
    }
    let stuck = world.scene.now().machines.len();
    assert_eq!(stuck, usize::try_from(STUCK).unwrap(), "unknown is not absent: no machine whose cloud hangs is gone");
    assert_eq!((works.vms().await.len(), hangs.created().await), (0, 0));
}

/// Machines are created, rolled and deleted. Returns how long it takes.
async fn life_of_a_pool(world: &World) -> Duration {
    let begun = Instant::now();
    world.apply(objects::deployment("pool", MACHINES)).await;
    serving(world, "small").await;
    world.roll("large").await;
    serving(world, "large").await;
    world.scale(0).await;
    let is_gone = |scene: &Scene| (of_pool(scene) == 0).then_some(());
    world.scene.find("all machines to be gone", PATIENCE, is_gone).await;
    begun.elapsed()
}

async fn serving(world: &World, class: &str) {
    let machines = usize::try_from(MACHINES).unwrap();
    let all_serve = |scene: &Scene| (of_pool(scene) == machines && scene.available_of(class) == machines).then_some(());
    world.scene.find(&format!("all machines to serve with class {class}"), PATIENCE, all_serve).await;
}

fn of_pool(scene: &Scene) -> usize {
    scene.machines.values().filter(|machine| machine.spec.class.name != "stuck").count()
}

fn stuck(replicas: u32) -> Value {
    let mut deployment = objects::deployment("stuck", replicas);
    deployment["spec"]["template"]["spec"]["class"]["name"] = json!("stuck");
    deployment
}

/// A server that accepts every request and never responds.
struct Hole {
    address: std::net::SocketAddr,
    open: Arc<AtomicUsize>,
}

impl Hole {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, open) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    let mut request = [0; 1024];
                    while stream.read(&mut request).await.is_ok_and(|length| length > 0) {}
                    count.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, open }
    }

    /// Waits until a request hangs. All machines look for their VMs with one.
    async fn until_reached(&self) {
        let is_reached = async || (self.open.load(Ordering::Relaxed) > 0).then_some(());
        wait::until_within(PATIENCE, "a request to the cloud that hangs", is_reached).await;
    }
}
