// Prints the definitions of some types of Azure's API, in the form of a Swagger document. The argument is a folder with
// Microsoft's clients, whose mappers hold names on the wire, types, required fields and those that only answers have.

import { copyFileSync } from "node:fs";

const dir = process.argv[2];

// Types that are described field by field. Others are any object.
const KNOWN = {
  "arm-compute": [
    "VirtualMachine", "VirtualMachineUpdate", "Plan", "HardwareProfile", "StorageProfile", "ImageReference", "OSDisk", "DataDisk",
    "ManagedDiskParameters", "VMDiskSecurityProfile", "OSProfile", "LinuxConfiguration", "SshConfiguration", "SshPublicKey",
    "NetworkProfile", "NetworkInterfaceReference", "SubResource", "DiagnosticsProfile", "BootDiagnostics", "SecurityProfile",
    "UefiSettings", "CapacityReservationProfile", "VirtualMachineIdentity", "VirtualMachineInstanceView", "InstanceViewStatus",
    "Disk", "DiskSku", "CreationData", "ImageDiskReference", "VirtualMachineImage", "PurchasePlan", "OSDiskImage", "DataDiskImage",
  ],
  "arm-network": ["NetworkInterface", "NetworkInterfaceIPConfiguration", "Subnet", "TagsObject"],
  "arm-resources": ["Provider", "ResourceGroup", "ResourceGroupProperties"],
};
const ROOTS = [
  "VirtualMachine", "VirtualMachineUpdate", "Disk", "VirtualMachineImage", "NetworkInterface", "Subnet", "Provider", "ResourceGroup",
];

// No client holds them in this form: Microsoft.ResourceGraph 2021-06-01-preview and Microsoft.MarketplaceOrdering 2021-01-01.
const definitions = {
  QueryRequest: {
    required: ["query"],
    properties: {
      query: { type: "string" },
      subscriptions: { type: "array", items: { type: "string" } },
      options: { $ref: "#/definitions/QueryRequestOptions" },
    },
  },
  QueryRequestOptions: {
    properties: {
      $skipToken: { type: "string" }, $top: { type: "integer" }, $skip: { type: "integer" },
      resultFormat: { type: "string", enum: ["table", "objectArray"] },
      allowPartialScopes: { type: "boolean" },
    },
  },
  QueryResponse: {
    required: ["totalRecords", "count", "resultTruncated", "data"],
    properties: {
      totalRecords: { type: "integer" }, count: { type: "integer" }, resultTruncated: { type: "string", enum: ["true", "false"] },
      $skipToken: { type: "string" }, data: { type: "array", items: { type: "object" } },
      facets: { type: "array", items: { type: "object" } },
    },
  },
  AgreementTerms: {
    properties: {
      id: { type: "string" }, name: { type: "string" }, type: { type: "string" }, systemData: { type: "object" },
      properties: { $ref: "#/definitions/AgreementProperties" },
    },
  },
  AgreementProperties: {
    properties: {
      publisher: { type: "string" }, product: { type: "string" }, plan: { type: "string" }, licenseTextLink: { type: "string" },
      privacyPolicyLink: { type: "string" }, marketplaceTermsLink: { type: "string" }, retrieveDatetime: { type: "string" },
      signature: { type: "string" }, accepted: { type: "boolean" },
    },
  },
};

async function mappersOf(name) {
  const folder = `${dir}/@azure/${name}/dist-esm/src/models`;
  copyFileSync(`${folder}/mappers.js`, `${folder}/mappers.mjs`);
  return import(`${folder}/mappers.mjs`);
}

function schemaOf(type, mappers, known, isRequest) {
  switch (type.name) {
    case "String": case "DateTime": case "Date": case "Uuid": case "ByteArray": case "TimeSpan": return { type: "string" };
    case "Enum": return { type: "string", enum: type.allowedValues };
    case "Number": return { type: "number" };
    case "Boolean": return { type: "boolean" };
    case "Sequence": return { type: "array", items: schemaOf(type.element.type, mappers, known, isRequest) };
    case "Composite":
      if (!known.includes(type.className)) return { type: "object" };
      define(type.className, mappers, known, isRequest);
      return { $ref: `#/definitions/${type.className}${isRequest ? ".request" : ""}` };
    default: return { type: "object" };
  }
}

function define(name, mappers, known, isRequest) {
  const key = name + (isRequest ? ".request" : "");
  if (definitions[key]) return;
  const own = { required: [], properties: {} };
  definitions[key] = own;
  for (const property of Object.values(mappers[name].type.modelProperties)) {
    if (isRequest && property.readOnly) continue;
    const path = property.serializedName.replaceAll("\\\\.", "\0").split(".");
    const last = path.pop().replaceAll("\0", ".");
    let at = own;
    for (const part of path) {
      const inner = `${key}.${part}`;
      definitions[inner] ??= { required: [], properties: {} };
      at.properties[part] = { $ref: `#/definitions/${inner}` };
      at = definitions[inner];
    }
    at.properties[last] = schemaOf(property.type, mappers, known, isRequest);
    if (property.required && !property.readOnly) at.required.push(last);
  }
}

for (const [name, known] of Object.entries(KNOWN)) {
  const mappers = await mappersOf(name);
  for (const root of ROOTS.filter((one) => known.includes(one))) {
    define(root, mappers, known, false);
    define(root, mappers, known, true);
  }
}
const lines = Object.entries(definitions).map(([name, one]) => `    ${JSON.stringify(name)}: ${JSON.stringify(one)}`);
const title = "The definitions of Azure's API that mcm uses, without their descriptions, from Microsoft's clients for JavaScript (MIT).";
console.log(`{\n  "swagger": "2.0",\n  "info": {"title": ${JSON.stringify(title)}, "version": "2023-07-01"},`);
console.log(`  "definitions": {\n${lines.join(",\n")}\n  }\n}`);
