{{/*
Values that contradict each other: each message says which, and what to change. Shapes and types are the schema's (values.schema.json).
*/}}
{{- define "warmstart.validate" -}}
{{- $store := .Values.store -}}
{{- $claim := include "warmstart.claimName" . -}}
{{- if and (not $store.url) (not $claim) -}}
{{- fail "warmstart: no store; set store.url (s3://bucket/prefix), or store.claim.create, or store.claim.existingClaim" -}}
{{- end -}}
{{- if and $store.claim.create $store.claim.existingClaim -}}
{{- fail "warmstart: store.claim.create and store.claim.existingClaim are both set; remove one" -}}
{{- end -}}
{{- if and $claim $store.url (not (hasPrefix "file:///warmstart/store" $store.url)) -}}
{{- fail (printf "warmstart: store.url %s is not on the claim %s; remove store.url, or remove store.claim" $store.url $claim) -}}
{{- end -}}
{{- if and (hasPrefix "file:" $store.url) (not $claim) -}}
{{- fail (printf "warmstart: store.url %s is a folder that no volume holds; set store.claim.existingClaim or store.claim.create" $store.url) -}}
{{- end -}}
{{- if and (or $store.endpointUrl $store.region) (not (hasPrefix "s3:" $store.url)) -}}
{{- fail "warmstart: store.endpointUrl and store.region are for s3:// stores; remove them, or set store.url to s3://bucket/prefix" -}}
{{- end -}}
{{- if and $store.claim.readOnly (not $claim) -}}
{{- fail "warmstart: store.claim.readOnly is set without a claim; remove it, or set store.claim.existingClaim" -}}
{{- end -}}
{{- if and $store.claim.readOnly (eq .Values.init.onMiss "compile") -}}
{{- fail "warmstart: store.claim.readOnly lets init containers publish nothing, so each pod would compile for itself; set init.onMiss to skip, or store.claim.readOnly to false" -}}
{{- end -}}
{{- $trust := .Values.trust -}}
{{- if and $trust.trustedKeys $trust.trustedKeysConfigMap.name -}}
{{- fail "warmstart: trust.trustedKeys and trust.trustedKeysConfigMap.name are both set; remove one" -}}
{{- end -}}
{{- if and $trust.trustedKeysConfigMap.name (not $trust.trustedKeysConfigMap.keys) -}}
{{- fail "warmstart: trust.trustedKeysConfigMap.keys is empty; list the ConfigMap's keys that hold public keys" -}}
{{- end -}}
{{- if and $trust.requireSignature (not (include "warmstart.trustedKeysName" .)) -}}
{{- fail "warmstart: trust.requireSignature refuses everything without a trusted key; set trust.trustedKeys or trust.trustedKeysConfigMap" -}}
{{- end -}}
{{- if and $trust.requireSignature (not $trust.signingKeySecret.name) .Values.precompile -}}
{{- fail "warmstart: trust.requireSignature is set and the Jobs of precompile would publish unsigned; set trust.signingKeySecret.name" -}}
{{- end -}}
{{- if and (gt (int .Values.init.gpuCount) 0) (eq (dig "readOnlyRootFilesystem" false .Values.securityContext) true) -}}
{{- fail "warmstart: init.gpuCount needs a writable root file system for the driver's hook; remove securityContext.readOnlyRootFilesystem" -}}
{{- end -}}
{{- if and .Values.init.pullOnly (eq .Values.init.onMiss "compile") -}}
{{- fail "warmstart: init.pullOnly uses an image that cannot compile; set init.onMiss to skip" -}}
{{- end -}}
{{- if and .Values.init.pullOnly (not .Values.init.code.configMap) -}}
{{- fail "warmstart: init.pullOnly needs the code fingerprint of the servers' image; set init.code.configMap" -}}
{{- end -}}
{{- if and .Values.prewarm.enabled (eq .Values.claims "lease") (not .Values.prewarm.jobServiceAccount) -}}
{{- fail "warmstart: claims is lease, and pre-warm's Jobs run in their workloads' namespaces; set prewarm.jobServiceAccount to an account that may use leases there, or claims to store" -}}
{{- end -}}
{{- range $rule := .Values.prewarm.images -}}
{{- if and $rule.code (not $.Values.prewarm.codeConfigMap) -}}
{{- fail (printf "warmstart: prewarm.images names the code %s, and prewarm.codeConfigMap is not set" $rule.code) -}}
{{- end -}}
{{- end -}}
{{- range $part, $files := dict "init" .Values.init.modelFiles -}}
{{- if and $files.configMap $files.existingClaim -}}
{{- fail (printf "warmstart: %s.modelFiles.configMap and existingClaim are both set; remove one" $part) -}}
{{- end -}}
{{- end -}}
{{- range $path := list "/tmp" "/warmstart" "/dev" "/proc" "/sys" -}}
{{- if or (eq $.Values.cache.path $path) (hasPrefix (printf "%s/" $path) $.Values.cache.path) -}}
{{- fail (printf "warmstart: cache.path %s lies in %s, which the containers use otherwise; choose another folder" $.Values.cache.path $path) -}}
{{- end -}}
{{- end -}}
{{- range $name, $entry := .Values.precompile -}}
{{- if and $entry.manifest $entry.model -}}
{{- fail (printf "warmstart: precompile.%s has a manifest and a model; remove one" $name) -}}
{{- end -}}
{{- if not (or $entry.manifest $entry.model) -}}
{{- fail (printf "warmstart: precompile.%s says not what the server runs; set manifest (the workload's YAML) or model and args" $name) -}}
{{- end -}}
{{- if and $entry.manifest (or $entry.args $entry.env) -}}
{{- fail (printf "warmstart: precompile.%s: args and env belong to model; a manifest has its own" $name) -}}
{{- end -}}
{{- if and $entry.model (not $entry.gpus) -}}
{{- fail (printf "warmstart: precompile.%s names no GPU type; set gpus, such as [h200] (`warmstart gpus` lists them)" $name) -}}
{{- end -}}
{{- with $entry.modelFiles -}}
{{- if and .configMap .existingClaim -}}
{{- fail (printf "warmstart: precompile.%s.modelFiles.configMap and existingClaim are both set; remove one" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $store.claim.readOnly (or .Values.precompile .Values.prewarm.enabled .Values.gc.enabled) -}}
{{- fail "warmstart: store.claim.readOnly is set, and precompile, prewarm and gc write to the store; set it to false" -}}
{{- end -}}
{{- if and .Values.gc.enabled (not (or .Values.gc.olderThan .Values.gc.keep .Values.gc.maxBytes .Values.gc.vllm)) -}}
{{- fail "warmstart: gc.enabled without a limit removes nothing; set gc.olderThan, gc.keep, gc.maxBytes or gc.vllm" -}}
{{- end -}}
{{- if and .Values.rbac.readOwnPod (not .Values.rbac.serverAccounts) -}}
{{- fail "warmstart: rbac.readOwnPod needs the service accounts of the servers; set rbac.serverAccounts, or leave the spec to the chart's templates" -}}
{{- end -}}
{{- if .Values.injection.enabled -}}
{{- if not (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "warmstart: injection needs MutatingAdmissionPolicy of Kubernetes 1.36, this is %s; set injection.enabled to false and use the chart's templates (README.md), or pass --kube-version to helm template" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if gt (int .Values.init.gpuCount) 0 -}}
{{- fail "warmstart: injection cannot know a pod's GPU count; set init.gpuCount to 0" -}}
{{- end -}}
{{- if and .Values.init.failClosed .Values.injection.enabled -}}
{{- fail "warmstart: injection must never keep a pod from starting; set init.failClosed to false, or use the chart's templates for those pods" -}}
{{- end -}}
{{- end -}}
{{- end -}}
