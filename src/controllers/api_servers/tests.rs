//! Probes in a cell: what freezes machines, and what ends it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::KIND;
use crate::{
    machine,
    testing::{Fate, Leading, Standby, Wire, settings, until},
};

const CONTROL: &str = "GET machines/dummy_name";
const TARGET: &str = "GET nodes/dummy_name";

fn is_frozen(leading: &Leading) -> bool {
    let text = leading.metrics.render();
    assert!(text.contains("mcm_workqueue_adds_total{name=\"machinesafetyapiserver\"}"), "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("mcm_machine_controller_frozen ")).unwrap();
    line == "1"
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_freezes_machines_until_it_does() {
    for (probe, fate) in [(CONTROL, Fate::Unavailable), (TARGET, Fate::Unavailable), (TARGET, Fate::Refused)] {
        let wire = Wire::new();
        let leading = Leading::start_with_target(&wire, &[KIND, machine::KIND], &settings());
        until("both answer", || wire.count(CONTROL) == 1 && wire.count(TARGET) == 1).await;
        sleep(Duration::from_secs(3)).await;
        assert!(!is_frozen(&leading), "what does not exist is an answer");

        wire.judge(move |request| if request == probe { fate } else { Fate::Answered });
        let took = until("machines are frozen", || is_frozen(&leading)).await;
        let (soonest, latest) = (Duration::from_secs(30), Duration::from_secs(60 + 30 + 6));
        assert!(soonest < took && took <= latest, "{probe}: {took:?}");

        wire.judge(|_| Fate::Answered);
        let took = until("they are not", || !is_frozen(&leading)).await;
        assert!(took <= Duration::from_secs(7), "{probe}: {took:?}");
    }
}

fn adds(leading: &Leading) -> String {
    let text = leading.metrics.render();
    let line = text.lines().find(|line| line.starts_with("mcm_workqueue_adds_total{name=\"machine\"}")).unwrap();
    line.to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_silent_target_delays_no_other_and_wakes_no_machine_of_another() {
    let (wire, here, away) = (Wire::new(), Wire::new(), Wire::new());
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "m", "namespace": "shoot"},
        "spec": {"class": {"kind": "MachineClass", "name": "missing"}},
    });
    wire.put::<Value>("machines/m", &machine);
    let named = [("here", &here), ("away", &away)];
    let leading = Standby::start_with_targets(&wire, &[KIND, machine::KIND], &settings(), &named).lead();
    until("both answer", || here.count(TARGET) == 1 && away.count(TARGET) == 1).await;
    sleep(Duration::from_secs(10)).await;
    let before = adds(&leading);
    away.judge(|request| if request == TARGET { Fate::Silent } else { Fate::Answered });
    until("machines are frozen", || is_frozen(&leading)).await;
    assert_eq!(adds(&leading), before, "the machine is in another target");

    here.judge(|request| if request == TARGET { Fate::Unavailable } else { Fate::Answered });
    let took = until("its machine is woken", || adds(&leading) != before).await;
    assert!(took <= Duration::from_secs(60 + 30 + 6 + 3 * 10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_that_are_shorter_than_the_timeout_freeze_nothing() {
    let wire = Wire::new();
    let leading = Leading::start_with_target(&wire, &[KIND, machine::KIND], &settings());
    until("both answer", || wire.count(TARGET) == 1).await;
    for _ in 0..20 {
        let probes = wire.count(TARGET);
        wire.judge(|request| if request == TARGET { Fate::Unavailable } else { Fate::Answered });
        until("one fails", || wire.count(TARGET) > probes).await;
        wire.judge(|_| Fate::Answered);
        sleep(Duration::from_secs(30)).await;
        assert!(!is_frozen(&leading));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_target_nothing_is_probed() {
    let wire = Wire::new();
    let _leading = Leading::start(&wire, &[KIND, machine::KIND], &settings());
    sleep(Duration::from_mins(10)).await;
    assert_eq!((wire.count(CONTROL), wire.count(TARGET)), (0, 0));
}
