//! Changes of the devices of a template, its first network card and its first disk, and of the disks of a VM that is deleted. Other
//! parts of them stay as they are.

use roxmltree::Node;

use super::soap::{Xml, child, children, echo, kind_of, number_of, text_of};

const DISK: &str = "VirtualDisk";
/// The types of network cards.
const NICS: [&str; 7] = [
    "VirtualE1000",
    "VirtualE1000e",
    "VirtualPCNet32",
    "VirtualSriovEthernetCard",
    "VirtualVmxnet",
    "VirtualVmxnet2",
    "VirtualVmxnet3",
];
/// The type of a network card that is added.
const ADDED_NIC: &str = "VirtualVmxnet3";
/// The key of a device that vSphere does not have yet.
const NEW_KEY: i32 = -1;
/// Elements of a device that follow its backing.
const AFTER_BACKING: [&str; 5] = ["connectable", "slotInfo", "controllerKey", "unitNumber", "addressType"];
/// Elements of a disk that follow its capacity.
const AFTER_CAPACITY: [&str; 4] = ["shares", "storageIOAllocation", "diskObjectId", "vDiskId"];
const KB: i64 = 1 << 10;
const GB: i64 = 1 << 30;

/// Connects the first network card to another network; adds a card to a VM without cards.
pub(crate) fn nic_change(devices: Node<'_, '_>, backing: &Xml) -> Xml {
    match first(devices, &NICS) {
        Some((nic, kind)) => change("edit", &kind, &echo(nic, &[("backing", backing.clone())], &AFTER_BACKING)),
        None => change("add", ADDED_NIC, &Xml::new().value("key", NEW_KEY).and(backing)),
    }
}

/// Enlarges the first disk to a size in GB.
///
/// # Errors
/// There is no disk, or it is larger.
pub(crate) fn disk_change(devices: Node<'_, '_>, size: i32) -> Result<Xml, String> {
    let Some((disk, kind)) = first(devices, &[DISK]) else {
        return Err("the template has no disk, so providerSpec.systemDisk has no effect".to_owned());
    };
    let wanted = i64::from(size).saturating_mul(GB);
    let in_kb = number_of(disk, "capacityInKB").unwrap_or_default().saturating_mul(KB);
    let found = number_of(disk, "capacityInBytes").filter(|bytes| *bytes > 0).unwrap_or(in_kb);
    if wanted < found {
        return Err(format!(
            "providerSpec.systemDisk.size of {size} GB is less than the disk of the template, which has {found} bytes: a disk \
             cannot be made smaller"
        ));
    }
    let capacity = [
        ("capacityInKB", Xml::new().value("capacityInKB", wanted / KB)),
        ("capacityInBytes", Xml::new().value("capacityInBytes", wanted)),
    ];
    Ok(change("edit", &kind, &echo(disk, &capacity, &AFTER_CAPACITY)))
}

/// Detaches the disks of others from a VM, whose configuration is in the file `vm_path`: their files stay. A disk is its own if
/// its file is in the directory of the VM or, on another datastore, in the directory of the same name or of the VM's name.
pub(crate) fn detachments(devices: Node<'_, '_>, vm_path: &str, vm_name: &str) -> Vec<Xml> {
    let own = [directory(vm_path), vm_name];
    let disks = children(devices, "VirtualDevice").filter(|device| kind_of(*device).as_deref() == Some(DISK));
    let is_foreign = |disk: &Node<'_, '_>| {
        let file = child(*disk, "backing").and_then(|backing| text_of(backing, "fileName")).unwrap_or_default();
        !own.contains(&directory(&file))
    };
    // Without a file operation the file of a disk stays.
    disks.filter(is_foreign).map(|disk| change("remove", DISK, &echo(disk, &[], &[]))).collect()
}

/// The directory of a file such as `[datastore] directory/file`, without the datastore.
fn directory(path: &str) -> &str {
    let file = path.split_once("] ").map_or(path, |(_, file)| file);
    file.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The first device of some types, with its type.
fn first<'a, 'd>(devices: Node<'a, 'd>, kinds: &[&str]) -> Option<(Node<'a, 'd>, String)> {
    children(devices, "VirtualDevice").find_map(|device| {
        let kind = kind_of(device).filter(|kind| kinds.contains(&kind.as_str()))?;
        child(device, "key").map(|_| (device, kind))
    })
}

fn change(operation: &str, kind: &str, device: &Xml) -> Xml {
    let content = Xml::new().text("operation", operation).typed("device", kind, device);
    Xml::new().typed("deviceChange", "VirtualDeviceConfigSpec", &content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;
    use rstest::rstest;

    const NIC: &str = r#"<VirtualDevice xsi:type="VirtualVmxnet3"><key>4000</key><backing xsi:type="Old"><deviceName>old</deviceName></backing><addressType>assigned</addressType><macAddress>00:50</macAddress></VirtualDevice>"#;
    const DISKS: &str = r#"<VirtualDevice xsi:type="VirtualDisk"><key>2000</key><unitNumber>0</unitNumber><capacityInKB>10485760</capacityInKB><shares><shares>1</shares></shares></VirtualDevice><VirtualDevice xsi:type="VirtualDisk"><key>2001</key><capacityInKB>1</capacityInKB></VirtualDevice>"#;

    fn with<T>(devices: &str, act: impl FnOnce(Node<'_, '_>) -> T) -> T {
        let text = format!(r#"<val xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">{devices}</val>"#);
        let document = Document::parse(&text).unwrap();
        act(document.root_element())
    }

    fn text(change: &Xml) -> String {
        format!("{change:?}").replace('\\', "")
    }

    fn backing() -> Xml {
        Xml::new().typed("backing", "New", &Xml::new().text("deviceName", "new"))
    }

    #[test]
    fn the_first_network_card_keeps_its_type_and_address() {
        let changed = text(&with(NIC, |devices| nic_change(devices, &backing())));
        let expected = r#"<operation>edit</operation><device xsi:type="VirtualVmxnet3"><key>4000</key><backing xsi:type="New"><deviceName>new</deviceName></backing><addressType>assigned</addressType><macAddress>00:50</macAddress></device>"#;
        assert!(changed.contains(expected), "{changed}");
    }

    #[test]
    fn a_network_card_that_is_added_is_of_the_type_vmxnet3() {
        let changed = text(&with(DISKS, |devices| nic_change(devices, &backing())));
        let expected = r#"<operation>add</operation><device xsi:type="VirtualVmxnet3"><key>-1</key><backing xsi:type="New"><deviceName>new</deviceName></backing></device>"#;
        assert!(changed.contains(expected), "{changed}");
    }

    #[test]
    fn the_first_disk_grows() {
        let changed = text(&with(DISKS, |devices| disk_change(devices, 20).unwrap()));
        let expected = "<key>2000</key><unitNumber>0</unitNumber><capacityInKB>20971520</capacityInKB><capacityInBytes>21474836480</capacityInBytes><shares>";
        assert!(changed.contains(expected), "{changed}");
        with(DISKS, |devices| disk_change(devices, 10).unwrap());
    }

    #[rstest]
    #[case::smaller(DISKS, 9, "cannot be made smaller")]
    #[case::none(NIC, 20, "has no disk")]
    fn a_disk_that_cannot_have_the_size_is_refused(#[case] devices: &str, #[case] size: i32, #[case] expected: &str) {
        let problem = with(devices, |devices| disk_change(devices, size).unwrap_err());
        assert!(problem.contains(expected), "{problem}");
    }

    #[rstest]
    #[case::in_its_directory("[ds1] m/m.vmdk", "[ds1] m/m.vmx", 0)]
    #[case::with_a_snapshot("[ds1] m/m-000001.vmdk", "[ds1] m/m.vmx", 0)]
    #[case::on_another_datastore("[ds2] m/m_1.vmdk", "[ds1] m/m.vmx", 0)]
    #[case::of_vsan("[vsan] 5c8f-21/m.vmdk", "[vsan] 5c8f-21/m.vmx", 0)]
    #[case::beside_vsan("[ds2] m/m.vmdk", "[vsan] 5c8f-21/m.vmx", 0)]
    #[case::of_the_in_tree_provider("[ds1] kubevols/pvc-2.vmdk", "[ds1] m/m.vmx", 1)]
    #[case::of_another_vm("[ds1] n/n.vmdk", "[ds1] m/m.vmx", 1)]
    #[case::of_a_directory_below("[ds1] m/x/n.vmdk", "[ds1] m/m.vmx", 1)]
    #[case::at_the_top("[ds1] n.vmdk", "[ds1] m/m.vmx", 1)]
    #[case::without_a_file("", "[ds1] m/m.vmx", 1)]
    fn a_disk_of_another_directory_is_detached(#[case] file: &str, #[case] vm: &str, #[case] expected: usize) {
        let disk = format!(
            r#"<VirtualDevice xsi:type="VirtualDisk"><key>2001</key><backing xsi:type="B"><fileName>{file}</fileName></backing></VirtualDevice>{NIC}"#
        );
        let changes = with(&disk, |devices| detachments(devices, vm, "m"));
        assert_eq!(changes.len(), expected);
        let is_kept = |change| {
            text(change).contains("<operation>remove</operation><device ") && !text(change).contains("fileOperation")
        };
        assert!(changes.iter().all(is_kept), "{changes:?}");
    }
}
