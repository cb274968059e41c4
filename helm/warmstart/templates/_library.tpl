{{/*
Templates for charts that serve vLLM. Add warmstart as a dependency and call them with its scope, `.Subcharts.warmstart`:

  initContainers:
    {{- include "warmstart.initContainer" (dict "root" .Subcharts.warmstart "pod" $podSpec) | nindent 4 }}
  containers:
    - name: vllm
      env:
        {{- include "warmstart.serverEnv" (dict "root" .Subcharts.warmstart) | nindent 8 }}
      volumeMounts:
        {{- include "warmstart.volumeMounts" (dict "root" .Subcharts.warmstart) | nindent 8 }}
  volumes:
    {{- include "warmstart.volumes" (dict "root" .Subcharts.warmstart) | nindent 4 }}

or all four at once, for a pod spec at hand: `warmstart.podSpec`. README.md describes each call.
*/}}

{{/*
Env of the vLLM container. Inductor's folder vLLM places below its cache root by itself; kernels outside the model Triton looks for in the
home folder, unless it is told where they were installed. Call with root; with pod and container, as `warmstart.initContainer`, it is what
that server's env does not say itself.
*/}}
{{- define "warmstart.serverEnv" -}}
{{- $cacheRoot := include "warmstart.cacheRoot" . -}}
{{- $names := dict }}{{ range (include "warmstart.serverContainer" . | fromYaml).env }}{{ $_ := set $names .name true }}{{ end -}}
{{- $env := list (dict "name" "VLLM_CACHE_ROOT" "value" $cacheRoot) (dict "name" "TRITON_CACHE_DIR" "value" (printf "%s/triton" $cacheRoot)) -}}
{{- range $name, $value := .root.Values.cache.serverEnv }}{{ $env = append $env (dict "name" $name "value" $value) }}{{ end -}}
{{- $new := list }}{{ range $env }}{{ if not (hasKey $names .name) }}{{ $new = append $new . }}{{ end }}{{ end -}}
{{- with $new }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* The whole env of the pod's server: its own, then ours. Call as `warmstart.initContainer`, with a pod. */}}
{{- define "warmstart.mergedEnv" -}}
{{- $own := (include "warmstart.serverContainer" . | fromYaml).env | default list -}}
{{- toYaml (concat $own (include "warmstart.serverEnv" . | fromYamlArray)) -}}
{{- end -}}

{{/* Mounts of the vLLM container. */}}
{{- define "warmstart.volumeMounts" -}}
- name: warmstart-cache
  mountPath: {{ .root.Values.cache.path | quote }}
{{- end -}}

{{/* Volumes of the pod. */}}
{{- define "warmstart.volumes" -}}
{{- include "warmstart.validate" .root -}}
- name: warmstart-cache
  emptyDir:
    sizeLimit: {{ .root.Values.cache.sizeLimit | quote }}
    {{- with .root.Values.cache.medium }}
    medium: {{ . | quote }}
    {{- end }}
{{ include "warmstart.workVolumes" (dict "root" .root "optional" true "readOnly" (eq .root.Values.init.onMiss "skip") "readOnlyStore" .root.Values.store.claim.readOnly "modelFiles" .root.Values.init.modelFiles "code" .root.Values.init.code) }}
{{- end -}}

{{/*
The init container, as a list of one. Call with
  root       the scope of this chart (`.Subcharts.warmstart`)
  pod        the pod spec that the server will run (a map); handed over in an env variable, so that no API access is needed
  gpu        GPU type, where neither values nor the pod's node selector say it
  container  name of the vLLM container, where the pod has several candidates
  handed     false: leave the spec out; the container then reads its own pod from the API server
*/}}
{{- define "warmstart.initContainer" -}}
{{- $root := .root -}}
{{- $init := $root.Values.init -}}
{{- include "warmstart.validate" $root -}}
{{- $server := include "warmstart.serverContainer" . | fromYaml -}}
{{- $env := include "warmstart.initEnv" . | fromYamlArray -}}
{{- $names := dict -}}
{{- range $env }}{{ $_ := set $names .name true }}{{ end -}}
{{- range $server.env -}}
{{- if not (hasKey $names .name) -}}
{{- if or (hasPrefix "HF_" .name) (and .valueFrom (or .valueFrom.secretKeyRef .valueFrom.configMapKeyRef)) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $cacheRoot := include "warmstart.cacheRoot" . -}}
{{- $mounts := include "warmstart.workVolumeMounts" (dict "root" $root "readOnly" (eq $init.onMiss "skip") "readOnlyStore" $root.Values.store.claim.readOnly "modelFiles" $init.modelFiles "code" $init.code) | fromYamlArray -}}
{{- if not (include "warmstart.cacheIsMounted" .) -}}
{{- $mounts = prepend $mounts (dict "name" "warmstart-cache" "mountPath" $cacheRoot) -}}
{{- end -}}
{{- $paths := dict "/dev/shm" true -}}
{{- range $mounts }}{{ $_ := set $paths .mountPath true }}{{ end -}}
{{- range $server.volumeMounts -}}
{{- if not (or (hasKey $paths .mountPath) .subPathExpr) -}}
{{- $holdsCache := hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) (printf "%s/" $cacheRoot) -}}
{{- $mounts = append $mounts (ternary . (mergeOverwrite (omit . "mountPropagation" | deepCopy) (dict "readOnly" true)) $holdsCache) -}}
{{- end -}}
{{- end -}}
- name: warmstart
  {{- if $init.pullOnly }}
  image: {{ include "warmstart.storeImage" $root | quote }}
  imagePullPolicy: {{ $root.Values.storeImage.pullPolicy }}
  {{- else }}
  image: {{ include "warmstart.image" $root | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  {{- end }}
  args: ["run"]
  env:
    {{- toYaml $env | nindent 4 }}
  {{- with concat ($server.envFrom | default list) (include "warmstart.envFrom" (dict "root" $root "optional" true) | fromYamlArray) }}
  envFrom:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "warmstart.initResources" $root }}
  resources:
    {{- . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- $security := include "warmstart.securityContext" (dict "root" $root "gpu" (gt (int $init.gpuCount) 0)) | fromYaml }}
    {{- /* A pod that runs everything as root would make the kubelet refuse a container that must not: give it the image's own user. */}}
    {{- if eq (toString (dig "securityContext" "runAsUser" "" (.pod | default dict))) "0" }}
    {{- $security = mergeOverwrite (dict "runAsUser" 65532 "runAsGroup" 0) $security }}
    {{- end }}
    {{- toYaml $security | nindent 4 }}
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    {{- toYaml $mounts | nindent 4 }}
{{- end -}}

{{/*
The vLLM container of the pod that was handed over: the named one, the only one, or the only one that mentions vLLM in its image,
command or arguments. An empty map without a pod.
*/}}
{{- define "warmstart.serverContainer" -}}
{{- $wanted := .container | default .root.Values.init.container -}}
{{- $all := (.pod | default dict).containers | default list -}}
{{- $found := list -}}
{{- range $all -}}
{{- if $wanted -}}
{{- if eq .name $wanted }}{{ $found = append $found . }}{{ end -}}
{{- else if or (eq (len $all) 1) (contains "vllm" (lower (toJson (pick . "image" "command" "args")))) -}}
{{- $found = append $found . -}}
{{- end -}}
{{- end -}}
{{- if and .pod (ne (len $found) 1) -}}
{{- $names := list -}}
{{- range $all }}{{ $names = append $names .name }}{{ end -}}
{{- fail (printf "warmstart: cannot tell which container runs vLLM; set init.container (or `container` in the call) to one of: %s" (join ", " $names)) -}}
{{- end -}}
{{- toYaml (first $found | default dict) -}}
{{- end -}}

{{/* Where the server keeps its cache: where its own env says, else cache.path. */}}
{{- define "warmstart.cacheRoot" -}}
{{- $path := .root.Values.cache.path -}}
{{- range (include "warmstart.serverContainer" . | fromYaml).env -}}
{{- if eq .name "VLLM_CACHE_ROOT" -}}
{{- if or (not (hasPrefix "/" (.value | default ""))) (contains "$" .value) -}}
{{- fail "warmstart: the server's VLLM_CACHE_ROOT is not a plain absolute path; write it out, or remove it and set cache.path" -}}
{{- end -}}
{{- $path = trimSuffix "/" .value -}}
{{- end -}}
{{- end -}}
{{- $path -}}
{{- end -}}

{{/* "true" where the server mounts something at its cache root, or above it: the cache then lies there, and needs no emptyDir. */}}
{{- define "warmstart.cacheIsMounted" -}}
{{- $root := include "warmstart.cacheRoot" . -}}
{{- range (include "warmstart.serverContainer" . | fromYaml).volumeMounts -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) (printf "%s/" $root) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Env of the init container. */}}
{{- define "warmstart.initEnv" -}}
{{- $init := .root.Values.init -}}
{{- include "warmstart.storeEnv" (dict "root" .root "readOnly" (eq $init.onMiss "skip") "init" true) }}
{{- include "warmstart.downwardEnv" . }}
- name: WARMSTART_ON_MISS
  value: {{ $init.onMiss | quote }}
- name: WARMSTART_DEADLINE
  value: {{ $init.deadline | quote }}
- name: WARMSTART_FAIL_CLOSED
  value: {{ $init.failClosed | quote }}
- name: WARMSTART_IMAGE_MISMATCH
  value: {{ .root.Values.imageMismatch | quote }}
- name: WARMSTART_CLAIMS
  value: {{ .root.Values.claims | quote }}
{{- with $init.jobs }}
- name: WARMSTART_JOBS
  value: {{ . | quote }}
{{- end }}
{{- with .container | default $init.container }}
- name: WARMSTART_CONTAINER
  value: {{ . | quote }}
{{- end }}
{{- with .gpu | default $init.gpu }}
- name: WARMSTART_GPU
  value: {{ . | quote }}
{{- end }}
{{- if .pod }}
- name: WARMSTART_POD_SPEC
  value: {{ include "warmstart.handedSpec" . | quote }}
{{- end }}
{{- include "warmstart.modelFilesEnv" $init.modelFiles }}
{{- if $init.code.configMap }}
- name: WARMSTART_CODE_FILE
  value: {{ printf "/warmstart/code/%s" $init.code.key | quote }}
{{- end }}
{{- with $init.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The pod spec as one line of JSON, reduced to what decides the cache, with the env that the server will get. `$` is doubled: the
kubelet expands $(NAME) in env values, and makes one `$` of two.
*/}}
{{- define "warmstart.handedSpec" -}}
{{- $server := include "warmstart.serverContainer" . | fromYaml -}}
{{- $containers := list -}}
{{- range .pod.containers -}}
{{- $container := pick . "name" "image" "command" "args" "env" "envFrom" "resources" "workingDir" | deepCopy -}}
{{- if eq .name $server.name -}}
{{- $_ := set $container "env" (include "warmstart.mergedEnv" $ | fromYamlArray) -}}
{{- end -}}
{{- $containers = append $containers $container -}}
{{- end -}}
{{- $spec := pick .pod "nodeSelector" "affinity" "resourceClaims" -}}
{{- $_ := set $spec "containers" $containers -}}
{{- $pod := dict "apiVersion" "v1" "kind" "Pod" "metadata" (dict "name" .root.Release.Name) "spec" $spec -}}
{{- toRawJson $pod | replace "$" "$$" -}}
{{- end -}}

{{/*
A whole pod spec with warmstart in it: the init container, the volumes, the pull secrets, and the cache in the vLLM container. Call with root and
pod as `warmstart.initContainer`; what the pod has already is kept and goes first, and a pod that has warmstart is left alone.
*/}}
{{- define "warmstart.podSpec" -}}
{{- $pod := deepCopy .pod -}}
{{- $has := false -}}
{{- range $pod.initContainers }}{{ if eq .name "warmstart" }}{{ $has = true }}{{ end }}{{ end -}}
{{- if not $has -}}
{{- $server := include "warmstart.serverContainer" . | fromYaml -}}
{{- $mounted := include "warmstart.cacheIsMounted" . -}}
{{- $containers := list -}}
{{- range $pod.containers -}}
{{- if eq .name $server.name -}}
{{- $env := include "warmstart.mergedEnv" $ | fromYamlArray -}}
{{- $mounts := .volumeMounts | default list -}}
{{- if not $mounted }}{{ $mounts = append $mounts (dict "name" "warmstart-cache" "mountPath" (include "warmstart.cacheRoot" $)) }}{{ end -}}
{{- $containers = append $containers (mergeOverwrite (deepCopy .) (dict "env" $env "volumeMounts" $mounts)) -}}
{{- else -}}
{{- $containers = append $containers . -}}
{{- end -}}
{{- end -}}
{{- $init := include "warmstart.initContainer" . | fromYamlArray -}}
{{- $volumes := list -}}
{{- range include "warmstart.volumes" . | fromYamlArray -}}
{{- if not (and $mounted (eq .name "warmstart-cache")) }}{{ $volumes = append $volumes . }}{{ end -}}
{{- end -}}
{{- $_ := set $pod "containers" $containers -}}
{{- $_ := set $pod "initContainers" (concat ($pod.initContainers | default list) $init) -}}
{{- $_ := set $pod "volumes" (concat ($pod.volumes | default list) $volumes) -}}
{{- with concat ($pod.imagePullSecrets | default list) .root.Values.imagePullSecrets | uniq }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- end -}}
{{- toYaml $pod -}}
{{- end -}}

{{/* Requests and limits of the init container, with its GPUs. */}}
{{- define "warmstart.initResources" -}}
{{- $resources := deepCopy .Values.init.resources -}}
{{- if gt (int .Values.init.gpuCount) 0 -}}
{{- $limits := mergeOverwrite (dict) ($resources.limits | default dict) (dict .Values.init.gpuResource (toString .Values.init.gpuCount)) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- if $resources }}{{ toYaml $resources }}{{ end -}}
{{- end -}}
