//! Proxies whose clock is wrong.

use jiff::{SignedDuration, Timestamp};
use mcm::api::machine::MachinePhase;
use rstest::rstest;
use serde_json::json;

use crate::support::{door::ProxyDate, wait, world::World};

fn half_an_hour_later() -> String {
    let time = Timestamp::now().checked_add(SignedDuration::from_mins(30)).unwrap();
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// No time of ours can represent it, so it is no measurement.
fn the_last_date() -> String {
    "Fri, 31 Dec 9999 23:59:59 GMT".to_owned()
}

/// A Machine that does not join is the first that fails if its age is wrong.
#[rstest]
#[case::all_half_an_hour(1, half_an_hour_later, &[], true)]
#[case::all_without_a_lease(1, half_an_hour_later, &["--leader-elect=false"], true)]
#[case::every_second_half_an_hour(2, half_an_hour_later, &[], true)]
#[case::every_third_the_last_date(3, the_last_date, &[], false)]
#[tokio::test]
async fn no_machine_fails_behind_a_proxy_that_changes_dates(
    #[case] every: usize,
    #[case] date: ProxyDate,
    #[case] flags: &[&str],
    #[case] is_shown: bool,
) {
    let world = World::new("dates").await;
    let door = world.door().await;
    door.change_dates(every, date);
    let manager = world.launch_run(flags).ready().await;
    world.scene.always("no machine fails", |scene| {
        scene.machines.values().all(|machine| machine.phase() != MachinePhase::Failed)
    });
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    world.cloud.control(json!({"neverJoin": ["*"]})).await;
    world.scale(3).await;
    world
        .until("a machine that does not join", |scene| {
            scene.machines.values().any(|machine| machine.phase() == MachinePhase::Pending)
        })
        .await;
    // An event that is written again, and so another reconcile of each machine.
    let before = door.heard().len();
    world.change(json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    wait::until("more answers", async || (door.heard().len() >= before + 20).then_some(())).await;
    assert_eq!(world.scene.now().ever.len(), 3, "machines ever made");
    let (_, metrics) = manager.get("/metrics").await;
    let disagreement = metrics.lines().filter(|line| line.starts_with("mcm_clock_disagreement_seconds{"));
    let seconds = disagreement.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).fold(0.0, f64::max);
    assert_eq!(seconds > 1_700.0, is_shown, "{seconds}");
}
