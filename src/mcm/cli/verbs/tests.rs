use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    decide,
    look::PlannedPatch,
    run::{MOST_ATTEMPTS, carry_out},
    verb::{ChangeVerb, ScaleTarget},
};
use crate::cli::error::rights_hint;
use mcm_fake_api::{
    ApiCall, ApiServer, CLASSES, CallDelivery, DEPLOYMENTS, DeliveryOutcome, NetworkModel, PerfectNetwork,
    clock::VirtualClock,
};
use mcm_insight::{reader, testing::blocked_pool};

/// An API server with a deployment that changes after each of the first `disturbed` readings.
struct World {
    server: ApiServer,
    client: Client,
    readings: AtomicU32,
    disturbed: u32,
    disturbance: fn(&mut Value),
}

impl World {
    fn new(disturbed: u32, disturbance: fn(&mut Value)) -> Self {
        let server = ApiServer::new(&VirtualClock::new(), Arc::new(PerfectNetwork));
        let pool = serde_json::to_value(&blocked_pool().deployments["pool"]).unwrap();
        server.create(&DEPLOYMENTS, pool).unwrap();
        let client = server.client("test");
        Self { server, client, readings: AtomicU32::new(0), disturbed, disturbance }
    }

    fn deployment(&self) -> Value {
        self.server.get(&DEPLOYMENTS, "demo", "pool").unwrap().value.clone()
    }

    fn undo(&self) -> anyhow::Result<PlannedPatch> {
        let mut facts = blocked_pool();
        let deployment = serde_json::from_value(self.deployment())?;
        facts.deployments.insert("pool".to_owned(), deployment);
        let change = decide::decide(&facts, ChangeVerb::Undo(None), &facts.find("pool").unwrap())?;
        if self.readings.fetch_add(1, Ordering::Relaxed) < self.disturbed {
            self.server.edit(&DEPLOYMENTS, "demo", "pool", self.disturbance).unwrap();
        }
        Ok(PlannedPatch { patch: change, plan: None })
    }

    async fn run(&self) -> anyhow::Result<()> {
        let change = self.undo()?;
        carry_out(&self.client, &change, false, async || self.undo()).await
    }
}

/// Changes nothing that a decision reads.
fn touch(deployment: &mut Value) {
    let touches = deployment["status"]["observedGeneration"].as_i64().unwrap_or_default();
    deployment["status"]["observedGeneration"] = (touches + 1).into();
}

#[rstest]
#[case::once(1)]
#[case::up_to_the_last_attempt(MOST_ATTEMPTS - 1)]
#[tokio::test]
async fn a_status_that_is_written_meanwhile_does_not_stop_a_change(#[case] disturbed: u32) {
    let world = World::new(disturbed, touch);
    world.run().await.unwrap();
    assert_eq!(world.deployment()["spec"]["rollbackTo"], json!({"revision": 3}));
    assert_eq!(world.readings.load(Ordering::Relaxed), disturbed + 1);
}

fn pause(deployment: &mut Value) {
    deployment["spec"]["paused"] = true.into();
}

#[rstest]
#[case::an_object_that_never_rests(u32::MAX, touch)]
#[case::another_decision(1, pause)]
#[tokio::test]
async fn nothing_is_written_if_the_change_is_another_one(#[case] disturbed: u32, #[case] disturbance: fn(&mut Value)) {
    let world = World::new(disturbed, disturbance);
    let error = world.run().await.unwrap_err().to_string();
    assert!(error.contains("changed meanwhile") || error.contains("is paused"), "{error}");
    assert_eq!(world.deployment()["spec"].get("rollbackTo"), None);
}

/// An API server whose user may not read classes.
struct WithoutClasses;

impl NetworkModel for WithoutClasses {
    fn fate(&self, call: &ApiCall) -> CallDelivery {
        let outcome = match call.kind == &CLASSES {
            true => DeliveryOutcome::Refused(403),
            false => DeliveryOutcome::Answered,
        };
        CallDelivery { there: Duration::ZERO, back: Duration::ZERO, outcome }
    }
}

#[tokio::test]
async fn a_verb_that_reads_no_class_needs_no_right_to_list_them() {
    let server = ApiServer::new(&VirtualClock::new(), Arc::new(WithoutClasses));
    let pool = serde_json::to_value(&blocked_pool().deployments["pool"]).unwrap();
    server.create(&DEPLOYMENTS, pool).unwrap();
    let (client, now) = (server.client("test"), Timestamp::UNIX_EPOCH);
    let facts = reader::objects_without_classes(&client, "demo", now).await.unwrap();
    decide::decide(&facts, ChangeVerb::Pause, &facts.find("pool").unwrap()).unwrap();
    assert!(!ChangeVerb::Pause.needs_classes() && !ChangeVerb::ForceDrain.needs_classes());

    let refused = reader::objects(&client, "demo", now).await.err().unwrap();
    assert!(rights_hint(&refused).is_some_and(|hint| hint.contains("config/rbac/view.yaml")), "{refused:?}");
    assert!(ChangeVerb::Scale(ScaleTarget { replicas: 1, current: None }).needs_classes());
}
