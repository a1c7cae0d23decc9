//! Volumes of pods: claims, attachments, and the controllers that detach and attach them.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    super::api_server::{ATTACHMENTS, CLAIMS, NODES, OUTSIDE, ServerObject, VOLUMES, WriteRecord},
    kubelet::POD_NAMESPACE,
    world::World,
};

/// Longer than any wait for a volume.
const STUCK: Duration = Duration::from_mins(20);
/// Keeps an attachment until the volume is detached.
const FINALIZER: &str = "external-attacher/model";

impl World {
    /// Gives a new pod new volumes, attached to its Node.
    pub(super) fn add_volumes(&self, pod: &mut Value) {
        let node = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
        let (count, priority) = self.faults.rng(|rng| (rng.below(4), *rng.pick(&[0, 0, 1000]).unwrap()));
        pod["spec"]["priority"] = json!(priority);
        let mut mounts = Vec::new();
        for _ in 0..count {
            let number = self.faults.rng(|rng| rng.roll() % 1_000_000_000);
            let (claim, volume) = (format!("claim-{number}"), format!("pv-{number}"));
            let meta = json!({ "namespace": POD_NAMESPACE, "name": claim });
            self.target.create(&CLAIMS, json!({ "metadata": meta, "spec": { "volumeName": volume } })).unwrap();
            let csi = json!({ "driver": "model", "volumeHandle": handle(&volume) });
            self.target.create(&VOLUMES, json!({ "metadata": { "name": volume }, "spec": { "csi": csi } })).unwrap();
            self.attach(&volume, &node);
            mounts.push(json!({ "name": volume, "persistentVolumeClaim": { "claimName": claim } }));
        }
        pod["spec"]["volumes"] = json!(mounts);
    }

    fn attach(&self, volume: &str, node: &str) {
        let meta = json!({ "name": attachment(volume, node), "finalizers": [FINALIZER] });
        let spec = json!({ "attacher": "model", "nodeName": node, "source": { "persistentVolumeName": volume } });
        let attached = json!({ "metadata": meta, "spec": spec, "status": { "attached": true } });
        if self.target.create(&ATTACHMENTS, attached).is_err() {
            return;
        }
        let edited = self.target.edit(&NODES, "", node, |node| {
            let attached = &mut node["status"]["volumesAttached"];
            let mut all = attached.as_array().cloned().unwrap_or_default();
            all.push(json!({ "name": unique_name(volume), "devicePath": "" }));
            *attached = json!(all);
        });
        // It may be deleted.
        drop(edited);
        self.ledger.lock().volume_attached(volume);
    }

    fn detach(&self, volume: &str, node: &str) {
        let name = attachment(volume, node);
        if self.target.get(&ATTACHMENTS, "", &name).is_none() {
            return;
        }
        self.say(format!("volume {volume} is detached from node {node}"));
        // The Node may be deleted.
        drop(self.target.edit(&NODES, "", node, |node| {
            if let Some(attached) = node["status"]["volumesAttached"].as_array_mut() {
                attached.retain(|it| it["name"] != unique_name(volume));
            }
        }));
        self.target.edit(&ATTACHMENTS, "", &name, |it| it["metadata"]["finalizers"] = json!([])).unwrap();
        // It may have been terminating, and be deleted by now.
        drop(self.target.delete(&ATTACHMENTS, "", &name));
        self.ledger.lock().volume_detached(volume);
    }

    /// Called after each write of a pod: once it is deleted, its volumes are detached, and attached to the Node of its
    /// successor.
    pub(super) fn saw_mounts(self: &Arc<Self>, write: &WriteRecord<'_>) {
        let (Some(pod), None) = (write.before, write.after) else { return };
        let node = text(&pod.value["spec"]["nodeName"]);
        for volume in volumes_of(pod) {
            let is_stuck = self.faults.rates().mishaps > 0 && self.faults.one_in(6);
            let lasts = self.faults.millis(500..40_000);
            let (after, node) = (if is_stuck { STUCK } else { lasts }, node.clone());
            self.later(after, move |world| {
                world.detach(&volume, &node);
                let after = world.faults.millis(500..40_000);
                world.later(after, move |world| world.attach_elsewhere(&volume, &node));
            });
        }
    }

    fn attach_elsewhere(&self, volume: &str, former: &str) {
        let nodes = self.target.all(&NODES);
        let is_open = |node: &&Arc<ServerObject>| node.name() != former && node.value["spec"]["unschedulable"] != true;
        let open: Vec<String> = nodes.iter().filter(is_open).map(|node| node.name().to_owned()).collect();
        let is_attached = self.target.all(&ATTACHMENTS).iter().any(|it| volume_of(it) == volume);
        let Some(node) = self.faults.pick(&open).filter(|_| !is_attached) else { return };
        self.attach(volume, &node);
        let name = self.faults.rng(|rng| format!("next-{}", rng.roll() % 1_000_000_000));
        let claim = volume.replacen("pv-", "claim-", 1);
        let mounts = json!([{ "name": volume, "persistentVolumeClaim": { "claimName": claim } }]);
        self.place_pod(&name, &node, &mounts);
    }

    /// After each write of an attachment: one that a drain deletes is detached by force.
    pub(super) fn saw_attachment(self: &Arc<Self>, write: &WriteRecord<'_>) {
        let Some(attachment) = write.after.filter(|it| it.is_terminating() && &*write.call.caller != OUTSIDE) else {
            return;
        };
        let (volume, node) = (volume_of(attachment), text(&attachment.value["spec"]["nodeName"]));
        let after = self.faults.millis(500..20_000);
        self.later(after, move |world| world.detach(&volume, &node));
    }

    /// Frees the volumes of deleted Nodes.
    pub(super) fn collect_attachments(&self) {
        for attachment in self.target.all(&ATTACHMENTS) {
            let node = text(&attachment.value["spec"]["nodeName"]);
            if self.target.get(&NODES, "", &node).is_none() {
                self.detach(&volume_of(&attachment), &node);
            }
        }
    }
}

/// The volumes of a pod, by name.
pub(super) fn volumes_of(pod: &ServerObject) -> Vec<String> {
    let mounts = pod.value["spec"]["volumes"].as_array();
    mounts.into_iter().flatten().map(|mount| text(&mount["name"])).collect()
}

/// The driver's ID of a volume.
pub(super) fn handle(volume: &str) -> String {
    volume.replacen("pv-", "vol-", 1)
}

fn unique_name(volume: &str) -> String {
    format!("kubernetes.io/csi/model^{}", handle(volume))
}

fn attachment(volume: &str, node: &str) -> String {
    format!("{volume}-on-{node}")
}

fn volume_of(attachment: &ServerObject) -> String {
    text(&attachment.value["spec"]["source"]["persistentVolumeName"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
