//! `clusterctl move` there and back, repeatedly, while our manager is killed at another moment of each move.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use super::{count, is_full, print, seconds};
use crate::{
    moves::{
        ids, is_complete, is_gone_from, journal_of, journal_so_far, nodes, seen_from, with_machines_and_pool, words,
    },
    scene::Scene,
    support::wait,
    world::{World, play},
};

const NATIVE: &str = "machines.machine.sapcloud.io";

/// A moment of a move, and the manager that is killed then.
struct Moment {
    what: &'static str,
    /// At the target; otherwise at the source.
    is_at_target: bool,
    /// True once it has happened, from the objects of source and target.
    has_come: fn(&Scene, &Scene) -> bool,
}

/// In the order in which they come.
static MOMENTS: [Moment; 6] = [
    Moment { what: "the move begins", is_at_target: false, has_come: |_, _| true },
    Moment { what: "the Cluster is paused at the source", is_at_target: false, has_come: |from, _| is_paused(from) },
    Moment {
        what: "the first object is at the target",
        is_at_target: true,
        has_come: |from, to| to.find("mcmcluster", &from.name).is_some(),
    },
    Moment { what: "MCM Machines are at the target", is_at_target: true, has_come: |_, to| !to.all(NATIVE).is_empty() },
    Moment {
        what: "the Cluster is unpaused at the target",
        is_at_target: true,
        has_come: |from, to| to.find("cluster", &from.name).is_some() && !is_paused(to),
    },
    Moment {
        what: "objects are removed at the source",
        is_at_target: false,
        has_come: |from, _| from.find("cluster", &from.name).is_none() || is_being_removed(from),
    },
];

fn is_paused(scene: &Scene) -> bool {
    scene.find("cluster", &scene.name).is_some_and(|cluster| cluster["spec"]["paused"] == true)
}

fn is_being_removed(scene: &Scene) -> bool {
    let mark = "clusterctl.cluster.x-k8s.io/delete-for-move";
    scene.all(NATIVE).iter().any(|machine| !machine["metadata"]["annotations"][mark].is_null())
}

/// MV3, MV4, Z5: whenever our manager is killed, no VM is created, none is deleted, and no Node changes.
#[test]
fn a_cluster_moves_there_and_back_while_our_manager_is_killed_at_every_moment() {
    play(async |world: &'static World| {
        let machines = count("moved", 10, 2);
        let moments: Vec<&Moment> = if is_full() { MOMENTS.iter().collect() } else { vec![&MOMENTS[3], &MOMENTS[5]] };
        let mut here = with_machines_and_pool(world, "hunted", machines).await;
        let mut there = seen_from(world.another().await, &here);
        let (vms, ids, nodes_before, from) = (here.vms().await, ids(&here).await, nodes(&here), journal_so_far(&here));
        assert_eq!((vms.len(), nodes_before.len()), (2 * machines, 2 * machines));
        let mut rows = Vec::new();
        for (index, moment) in moments.iter().enumerate() {
            let row = move_and_kill(&here, &there, moment).await;
            let start = Instant::now();
            is_complete(&there, machines).await;
            is_gone_from(&here).await;
            assert_eq!((there.vms().await, nodes(&there)), (vms.clone(), nodes_before.clone()), "{}", moment.what);
            let noticed = journal_of(&there, &from, &ids);
            assert_eq!(noticed, [""; 0], "the cloud noticed: {}", moment.what);
            let way = if index % 2 == 0 { "there" } else { "back" };
            rows.push([vec![way.to_owned()], row, vec![seconds(start), noticed.len().to_string()]].concat());
            std::mem::swap(&mut here, &mut there);
        }
        print(
            &format!("{} machines move, half of them in a pool", 2 * machines),
            &["", "SIGKILL when", "of", "move", "and then complete after", "changes in the cloud"],
            rows,
        );
        here.kubectl(&["delete", "cluster", "hunted", "--timeout=600s"]);
        assert!(here.vms().await.is_empty());
    });
}

/// The killed programs, and the duration of the move.
async fn move_and_kill(from: &Scene, to: &Scene, moment: &Moment) -> Vec<String> {
    let kubeconfig = to.world.management.kubeconfig().display().to_string();
    let mut command = from.world.command(&words(from, &kubeconfig));
    let start = Instant::now();
    let mut moving = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let limit = Duration::from_secs(170);
    let has_ended = |moving: &mut Child| moving.try_wait().unwrap().is_some();
    wait::until_within(limit, moment.what, async || {
        ((moment.has_come)(from, to) || has_ended(&mut moving)).then_some(())
    })
    .await;
    let is_late = has_ended(&mut moving);
    let victim = if moment.is_at_target { to } else { from };
    victim.world.kill_provider();
    let moved = wait::until_within(limit, "the move to end", async || moving.try_wait().unwrap()).await;
    assert!(moved.success(), "{}", moment.what);
    let took = seconds(start);
    // Status does not move, and the control plane has no controller.
    to.initialize();
    let what = if is_late { format!("{} (it was over already)", moment.what) } else { moment.what.to_owned() };
    vec![what, if moment.is_at_target { "target" } else { "source" }.to_owned(), took]
}
