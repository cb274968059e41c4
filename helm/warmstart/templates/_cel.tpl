{{/*
A value as a CEL literal. Kubernetes' CEL takes no list or map of mixed types, so every part is wrapped in dyn(). Whole numbers stay
whole: Helm holds all numbers as floats.
*/}}
{{- define "warmstart.cel" -}}
{{- if kindIs "map" . -}}
{{- $parts := list -}}
{{- range $name, $value := . }}{{ $parts = append $parts (printf "%s: dyn(%s)" (toRawJson $name) (include "warmstart.cel" $value)) }}{{ end -}}
{{- printf "{%s}" (join ", " $parts) -}}
{{- else if kindIs "slice" . -}}
{{- $parts := list -}}
{{- range . }}{{ $parts = append $parts (printf "dyn(%s)" (include "warmstart.cel" .)) }}{{ end -}}
{{- printf "[%s]" (join ", " $parts) -}}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- int64 . -}}
{{- else -}}
{{- toRawJson . -}}
{{- end -}}
{{- end -}}
