use std::{collections::BTreeMap, pin::Pin, sync::Arc, task::Poll, time::Duration};

use futures::future::{BoxFuture, join_all, poll_fn};

use super::{
    bench::{CheckEnvironment, CheckStopReason, OWNER, fail, skip, with_id},
    subject::ConformanceSubject,
};
use crate::{code::Code, error::DriverError, interface::MachineRequest, spec::ClassProblems, vm::Vm};
use mcm_api::machine::MachineClass;

type ConformanceResult = Result<(), CheckStopReason>;
type ConformanceCheck = for<'a> fn(&'a CheckEnvironment<'a>) -> BoxFuture<'a, ConformanceResult>;
type CheckOfTexts = fn(&ConformanceSubject<'_>, &[String]) -> ConformanceResult;

/// The requirements and their checks.
pub(super) const ALL: &[(&str, ConformanceCheck)] = &[
    ("validate accepts a class from which VMs can be created", |bench| Box::pin(valid_class(bench))),
    ("an invalid class is rejected with paths, and no VM is created from it", |bench| Box::pin(invalid_class(bench))),
    ("status of a machine without a VM is NotFound", |bench| Box::pin(status_of_nothing(bench))),
    ("delete of a machine without a VM succeeds", |bench| Box::pin(delete_of_nothing(bench))),
    ("create returns a VM that status finds, by name and by provider ID", |bench| Box::pin(create(bench))),
    ("a second create finds the VM of the first", |bench| Box::pin(second_create(bench))),
    ("concurrent creates create one VM", |bench| Box::pin(concurrent_creates(bench))),
    ("a create that was cancelled is found by the next", |bench| Box::pin(cancelled_create(bench))),
    ("a machine with another UID does not get the VM", |bench| Box::pin(other_uid(bench))),
    ("initialize can be repeated and keeps the provider ID", |bench| Box::pin(initialize(bench))),
    ("delete removes the VM, and can be repeated", |bench| Box::pin(delete(bench))),
    ("delete without a provider ID removes the VM", |bench| Box::pin(delete_by_name(bench))),
    ("a delete that was cancelled is completed by the next", |bench| Box::pin(cancelled_delete(bench))),
    ("a provider ID identifies exactly one VM", |bench| Box::pin(gone_provider_id(bench))),
    ("list contains every VM that was created, with the name of its machine", |bench| Box::pin(list(bench))),
    ("list returns the owner that create was given", |bench| Box::pin(owner(bench))),
    ("list contains no VM that was deleted", |bench| Box::pin(list_after_delete(bench))),
    ("VMs of another cluster are neither listed nor deleted", |bench| Box::pin(foreign_cluster(bench))),
    ("volume_ids keeps the order and leaves out unknown types", |bench| Box::pin(volume_ids(bench))),
];

/// Checks of all texts that the driver returned.
pub(super) const OF_TEXTS: &[(&str, CheckOfTexts)] =
    &[("no text contains a secret", no_secrets), ("brackets in texts come in pairs", paired_brackets)];

async fn valid_class(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let problems = problems_of(bench, &bench.subject.class).await?;
    if problems.errors.is_empty() { Ok(()) } else { fail(problems.error_text()) }
}

async fn invalid_class(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let Some(class) = &bench.subject.invalid_class else { return skip("the subject has no invalid class") };
    let problems = problems_of(bench, class).await?;
    if problems.errors.is_empty() || problems.errors.iter().any(|problem| problem.path.is_empty()) {
        return fail(format!("validate returned {problems:?}"));
    }
    let request = bench.machine_of("invalid", class);
    match bench.repeat(|| bench.subject.driver.create(&request)).await {
        Err(error) if error.code == Code::InvalidArgument => expect_none(bench, &bench.machine("invalid")).await,
        other => fail(format!("create returned {other:?} instead of InvalidArgument")),
    }
}

async fn problems_of(bench: &CheckEnvironment<'_>, class: &MachineClass) -> Result<ClassProblems, CheckStopReason> {
    let problems = bench.repeat(|| bench.subject.driver.problems(class)).await;
    problems.or_else(|error| fail(format!("validate failed: {error}")))
}

async fn status_of_nothing(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    expect_none(bench, &bench.machine("absent")).await
}

async fn delete_of_nothing(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    bench.delete(&bench.machine("absent")).await
}

async fn create(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    if vm.provider_id.is_empty() || vm.node_name.is_empty() {
        return fail(format!("create returned a VM without provider ID or node name: {vm:?}"));
    }
    for request in [&request, &with_id(&request, &vm.provider_id)] {
        expect_vm(bench, request, &vm).await?;
    }
    Ok(())
}

async fn second_create(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let (first, second) = (bench.create(&request).await?, bench.create(&request).await?);
    same(&first, &second)?;
    expect_count(bench, &request, 1).await
}

async fn concurrent_creates(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    // The second call may be rejected for the moment, but must not return another VM.
    let answers = join_all((0..8).map(|_| bench.subject.driver.create(&request))).await;
    let vm = bench.create(&request).await?;
    for answer in answers.into_iter().filter_map(|answer| bench.record(answer).ok()) {
        same(&vm, &answer)?;
    }
    expect_count(bench, &request, 1).await?;
    expect_vm(bench, &request, &vm).await
}

async fn cancelled_create(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    for moment in MOMENTS {
        cancel(moment, bench.subject.driver.create(&request)).await;
    }
    let vm = bench.create(&request).await?;
    expect_count(bench, &request, 1).await?;
    expect_vm(bench, &request, &vm).await
}

async fn other_uid(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    let mut other = request.clone();
    Arc::make_mut(&mut other.machine).metadata.uid = Some("11111111-0000-4000-8000-000000000000".to_owned());
    match bench.repeat(|| bench.subject.driver.create(&other)).await {
        Ok(found) if found.provider_id == vm.provider_id => {
            fail("create returned the VM of the machine with the other UID")
        }
        // It has another VM.
        Ok(_) => bench.delete(&other).await,
        Err(_) => Ok(()),
    }
}

async fn initialize(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    if !bench.subject.driver.capabilities().initialize {
        return skip("the driver does not initialize");
    }
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    for request in [&request, &with_id(&request, &vm.provider_id)] {
        match bench.repeat(|| bench.subject.driver.initialize(request)).await {
            Ok(initialized) => same(&vm, &initialized)?,
            Err(error) if error.code == Code::Unimplemented => return skip("the class needs no initialization"),
            Err(error) => return fail(format!("initialize failed: {error}")),
        }
    }
    match bench.repeat(|| bench.subject.driver.status(&request)).await {
        Ok(found) => same(&vm, &found),
        Err(error) => fail(format!("status after initialize failed: {error}")),
    }
}

async fn delete(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    let request = with_id(&request, &vm.provider_id);
    for _ in 0..2 {
        bench.delete(&request).await?;
        expect_none(bench, &request).await?;
    }
    expect_none(bench, &bench.machine("a")).await
}

async fn delete_by_name(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    bench.delete(&request).await?;
    expect_none(bench, &with_id(&request, &vm.provider_id)).await
}

async fn cancelled_delete(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    let request = with_id(&request, &vm.provider_id);
    for moment in MOMENTS {
        cancel(moment, bench.subject.driver.delete(&request)).await;
    }
    bench.delete(&request).await?;
    expect_none(bench, &request).await
}

async fn gone_provider_id(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let (gone, stays) = (bench.machine("gone"), bench.machine("stays"));
    let old = bench.create(&gone).await?;
    bench.delete(&gone).await?;
    let vm = bench.create(&stays).await?;
    let request = with_id(&stays, &old.provider_id);
    expect_none(bench, &request).await?;
    bench.delete(&request).await?;
    expect_vm(bench, &stays, &vm).await
}

async fn list(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let mut expected = BTreeMap::new();
    for name in ["a", "b", "c"] {
        let request = bench.machine(name);
        let vm = bench.create(&request).await?;
        expected.insert(vm.provider_id, request.machine.metadata.name.clone().unwrap_or_default());
    }
    let listed = bench.list(&bench.subject.class).await?;
    let machine_of = |id: &String| listed.get(id).map(|vm| vm.machine.as_str());
    match expected.iter().find(|(id, name)| machine_of(id) != Some(name)) {
        None => Ok(()),
        Some((id, name)) => fail(format!("VM {id} of machine {name} is listed as of {:?}", machine_of(id))),
    }
}

async fn owner(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let mut request = bench.machine("a");
    let vm = bench.create(&request).await?;
    // Another owner with the same cluster.
    request.owner = "another".to_owned();
    bench.create(&request).await?;
    match bench.list(&bench.subject.class).await?.get(&vm.provider_id).map(|vm| vm.owner.as_deref()) {
        Some(Some(OWNER)) => Ok(()),
        Some(None) => skip("the driver writes no owner on VMs"),
        other => fail(format!("VM {} of owner {OWNER} is listed with {other:?}", vm.provider_id)),
    }
}

async fn list_after_delete(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    bench.delete(&request).await?;
    let listed = bench.list(&bench.subject.class).await?;
    if listed.contains_key(&vm.provider_id) { fail(format!("VM {} is listed", vm.provider_id)) } else { Ok(()) }
}

async fn foreign_cluster(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let Some(foreign) = &bench.subject.foreign_class else {
        return skip("the subject has no class of another cluster");
    };
    let request = bench.machine("a");
    let vm = bench.create(&request).await?;
    if bench.list(foreign).await?.contains_key(&vm.provider_id) {
        return fail(format!("VM {} is listed for another cluster", vm.provider_id));
    }
    for other in [bench.machine_of("a", foreign), with_id(&bench.machine_of("a", foreign), &vm.provider_id)] {
        bench.delete(&other).await?;
    }
    expect_vm(bench, &request, &vm).await
}

async fn volume_ids(bench: &CheckEnvironment<'_>) -> ConformanceResult {
    let volumes = &bench.subject.volumes;
    if volumes.is_empty() {
        return skip("the subject has no volumes");
    }
    let orders = [volumes.clone(), volumes.iter().rev().cloned().collect()];
    for order in orders {
        let (specs, ids): (Vec<_>, Vec<_>) = order.into_iter().unzip();
        let expected: Vec<String> = ids.into_iter().flatten().collect();
        match bench.repeat(|| bench.subject.driver.volume_ids(&specs)).await {
            Ok(found) if found == expected => {}
            other => return fail(format!("volume_ids returned {other:?} instead of {expected:?}")),
        }
    }
    Ok(())
}

fn no_secrets(subject: &ConformanceSubject<'_>, texts: &[String]) -> ConformanceResult {
    let parts = subject.secret.0.iter().filter_map(|(key, value)| Some((key, std::str::from_utf8(value).ok()?)));
    // Shorter values would occur by accident.
    let mut parts = parts.filter(|(_, part)| part.len() >= 6);
    match parts.find(|(_, part)| texts.iter().any(|text| text.contains(part))) {
        None => Ok(()),
        Some((key, _)) => fail(format!("a text of the driver contains the value of {key}")),
    }
}

fn paired_brackets(_: &ConformanceSubject<'_>, texts: &[String]) -> ConformanceResult {
    match texts.iter().find(|text| text.matches('[').count() != text.matches(']').count()) {
        None => Ok(()),
        Some(text) => fail(format!("programs that parse machine codes cannot read: {text}")),
    }
}

/// When to cancel a call: at its first await, and a little later.
const MOMENTS: [Option<Duration>; 3] = [None, Some(Duration::from_millis(1)), Some(Duration::from_millis(20))];

/// Begins a call and drops it.
async fn cancel<T>(moment: Option<Duration>, mut call: Pin<Box<dyn Future<Output = T> + Send + '_>>) {
    match moment {
        None => {
            let once = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready()));
            once.await;
        }
        Some(moment) => drop(tokio::time::timeout(moment, call).await),
    }
}

async fn expect_none(bench: &CheckEnvironment<'_>, request: &MachineRequest) -> ConformanceResult {
    match bench.repeat(|| bench.subject.driver.status(request)).await {
        Err(DriverError { code: Code::NotFound, .. }) => Ok(()),
        other => fail(format!("status returned {other:?} instead of NotFound")),
    }
}

async fn expect_vm(bench: &CheckEnvironment<'_>, request: &MachineRequest, vm: &Vm) -> ConformanceResult {
    match bench.find(request).await? {
        Some(found) => same(vm, &found),
        None => fail(format!("status does not find VM {}", vm.provider_id)),
    }
}

async fn expect_count(bench: &CheckEnvironment<'_>, request: &MachineRequest, expected: usize) -> ConformanceResult {
    match bench.count(request).await? {
        Some(count) if count != expected => fail(format!("there are {count} VMs of the machine instead of {expected}")),
        _ => Ok(()),
    }
}

fn same(first: &Vm, second: &Vm) -> ConformanceResult {
    if (&first.provider_id, &first.node_name) == (&second.provider_id, &second.node_name) {
        Ok(())
    } else {
        fail(format!(
            "VM {} of node {} became {} of node {}",
            first.provider_id, first.node_name, second.provider_id, second.node_name
        ))
    }
}
